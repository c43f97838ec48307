"""First-principles time of a kernel on a GPU, in nanoseconds, for a batch of matrices.

A kernel is bound by the memory's bandwidth, by the instructions of its busiest multiprocessor, or
by the latency of one thread's chain of loads. What a launch costs is the same for all.
Absolute times do not matter: the model ranks configs of one problem.
"""

from __future__ import annotations

from ..cuda.targets import MAX_REGISTERS, WARP, CudaTarget
from ..cuda.tile_shape import Tile, grid_tiles
from ..problem import Problem
from ..vectors import ELEMENT_BYTES

BATCH = 256
"""Matrices of the batch that costs are compared for: 16 sentences by 16 heads."""

GIGAHERTZ = 1.4
CACHE_LATENCY = 60.0  # cycles, of a load that another one in flight has brought to the first cache
MEMORY_LATENCY = 500.0  # cycles
SHARED_LATENCY = 25.0  # cycles
SYNC_CYCLES = 30.0  # a barrier, with the warps arriving one after the other
LOADS_PER_CYCLE = 1.0  # warps' loads from shared memory or the first cache, of one multiprocessor
MULTIPLY_ADDS_PER_CYCLE = 128.0 / WARP  # warps' instructions of one multiprocessor


def nanoseconds(
    problem: Problem,
    target: CudaTarget,
    *,
    blocks: float,
    threads: int,
    loads: float,
    latency: float,
    multiply_adds: float,
    shared_bytes: int = 0,
    registers: int = 32,
    reads: float = 1.0,
) -> float:
    """Expected time for :data:`BATCH` matrices.

    Parameters
    ----------
    problem, target
        What is computed where.
    blocks
        Blocks to a matrix; less than one where a block computes several.
    threads
        Threads of a block.
    loads
        Loads of a thread from caches and shared memory, in units of what a warp reads at once.
    latency
        Cycles of a thread's longest chain, with nothing else running.
    multiply_adds
        Multiply-add instructions of a thread.
    shared_bytes, registers
        Of a block, and of a thread: they limit how many run at a time.
    reads
        How often the operands are read from memory.
    """
    m, n, k = problem.extents()
    machine = target.machine
    element = ELEMENT_BYTES[problem.dtype]
    bytes_moved = BATCH * element * (reads * (m * k + k * n) + m * n)
    memory = bytes_moved / machine.gigabytes_per_second
    warps = -(-threads // WARP)
    resident = max(
        1,
        min(
            32,
            machine.threads // (warps * WARP),
            machine.registers // (registers * warps * WARP),
            machine.shared_bytes // (shared_bytes + 1024),
        ),
    )
    total = BATCH * blocks
    waves = -(-total // (resident * machine.multiprocessors))
    # The busiest multiprocessor has whole blocks to run.
    mine = -(-total // machine.multiprocessors)
    rate = MULTIPLY_ADDS_PER_CYCLE / (2 if problem.dtype == "float64" else 1)
    issue = mine * warps * max(loads / LOADS_PER_CYCLE, multiply_adds / rate)
    cycles = max(issue, waves * latency) + 0.1 * min(issue, waves * latency)
    return max(memory, cycles / GIGAHERTZ) + 0.1 * min(memory, cycles / GIGAHERTZ)


def tile(problem: Problem, target: CudaTarget, shape: Tile) -> float:
    """Expected time of :func:`~tf_tvm_ops.kernels.cuda.tile.emit_tile`: see :func:`nanoseconds`."""
    m, n, k = problem.extents()
    chunks = -(-k // shape.tile_k)
    steps = chunks * shape.tile_k
    sides = (
        (shape.lhs_stage(problem.lhs), shape.tile_m),
        (shape.rhs_stage(problem.rhs), shape.tile_n),
    )
    deep = shape.vector_width if any(stage.along_k for stage, _ in sides) else 1
    loads = 0.0
    for stage, count in sides:
        extent = k if stage.along_k else (m if stage is sides[0][0] else n)
        wide = shape.vector_width > 1 and extent % shape.vector_width == 0
        lanes = shape.vector_width if wide else 1
        pieces = chunks * stage.outer * stage.inner / lanes / shape.threads_per_matrix
        loads += pieces * (1.0 if shape.copies_async else 2.0)
        loads += steps * count / (deep if stage.along_k else stage.group)
    sums = shape.tile_m * shape.tile_n
    # Chunks arrive while others are multiplied, if that takes long enough.
    multiply = steps * max(SHARED_LATENCY / deep, sums / 2)
    arrive = MEMORY_LATENCY + (chunks - 1) * max(0.0, MEMORY_LATENCY - multiply / chunks)
    blocks = grid_tiles(shape, m, n) / shape.matrices
    return nanoseconds(
        problem,
        target,
        blocks=blocks,
        threads=shape.threads,
        loads=loads,
        latency=arrive + multiply + chunks * SYNC_CYCLES,
        multiply_adds=steps * sums,
        shared_bytes=shape.shared_bytes(problem.lhs, problem.rhs, problem.dtype, chunks),
        registers=min(MAX_REGISTERS, 40 + sums + deep * (shape.tile_m + shape.tile_n)),
        # Tiles of one matrix run side by side: what they share comes from the second cache.
        reads=1.0,
    )
