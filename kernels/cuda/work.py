"""What a kernel does, counted from its config: the same on every GPU. Needs no TVM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..elements import ELEMENT_BYTES
from ..problem import Problem
from .targets import WARP
from .tile_shape import MMA_K, MMA_M, MMA_N, MmaTile, Tile, across_tiles

CACHE_LATENCY = 60.0  # cycles, of a load that another one in flight has brought to the first cache
MEMORY_LATENCY = 500.0  # cycles
SHARED_LATENCY = 25.0  # cycles
SYNC_CYCLES = 30.0  # a barrier, with the warps arriving one after the other
MMA_CYCLES = 8  # of a warp, from one instruction of the tensor cores to the next

VECTOR_BYTES = 16


@dataclass(frozen=True)
class Work:
    """What a kernel does for each matrix and in each thread.

    Attributes
    ----------
    threads
        Threads of a block.
    tiles_m, tiles_n
        Blocks that cover one matrix along M and along N.
    loads
        Loads of a thread from caches and shared memory, in units of what a warp reads at once.
    latency
        Cycles of a thread's longest chain, with nothing else running.
    multiply_adds
        Multiply-add instructions of a thread, those included whose result is thrown away.
    mma_instructions
        Instructions of a warp for the tensor cores, likewise.
    matrices
        Matrices that a block computes.
    """

    threads: int
    tiles_m: int
    tiles_n: int
    loads: float
    latency: float
    multiply_adds: int = 0
    mma_instructions: int = 0
    matrices: int = 1

    def blocks(self, batch: int) -> int:
        """Blocks for ``batch`` matrices."""
        return -(-batch // self.matrices) * self.tiles_m * self.tiles_n

    def flops(self, batch: int) -> int:
        """Operations executed for ``batch`` matrices, two to a multiply-add, padding included."""
        of_block = self.threads * self.multiply_adds
        of_block += self.threads // WARP * self.mma_instructions * MMA_M * MMA_N * MMA_K
        return 2 * self.blocks(batch) * of_block

    def bytes_requested(self, problem: Problem, batch: int) -> int:
        """Bytes that blocks ask for and write, for ``batch`` matrices.

        Each block reads its rows of ``lhs`` and columns of ``rhs`` once; what lies outside the
        product is not touched.
        """
        m, n, k = problem.extents()
        elements = self.tiles_n * m * k + self.tiles_m * k * n + m * n
        return batch * elements * ELEMENT_BYTES[problem.dtype]


def of_thread(problem: Problem, *, num_threads_y: int, num_threads_x: int, unroll: int) -> Work:
    """``cuda_thread``: each thread loads two elements for each multiply-add."""
    m, n, k = problem.extents()
    # Lanes of a warp read lines of their own where columns are rows of memory.
    spread = 1 if problem.rhs == "n" else min(num_threads_x, WARP)
    # Each step along K is a line of its own where columns lie side by side.
    step = MEMORY_LATENCY if problem.rhs == "n" else CACHE_LATENCY
    return Work(
        threads=num_threads_y * num_threads_x,
        tiles_m=-(-m // num_threads_y),
        tiles_n=-(-n // num_threads_x),
        loads=k * (1 + spread),
        latency=-(-k // unroll) * step + MEMORY_LATENCY,
        multiply_adds=k,
    )


def of_vector(
    problem: Problem,
    *,
    num_threads_x: int,
    num_threads_y: int,
    columns: int,
    unroll: int,
    matrices: int,
) -> Work:
    """``cuda_vector``: reads, and their latency; then the meeting of the sums."""
    _, n, k = problem.extents()
    element = ELEMENT_BYTES[problem.dtype]
    wide = VECTOR_BYTES // element
    if problem.rhs == "k":
        width = wide if k % wide == 0 else 1
        steps = -(-k // (num_threads_y * width))
        reads = float(steps * (1 + columns))
        # A warp's reads are whole lines only where its lanes are neighbours.
        spread = max(1.0, min(WARP, 8 / max(1, num_threads_y * width * element / 32)))
        meet = columns * (num_threads_y.bit_length() - 1) * SHARED_LATENCY
        multiply_adds = steps * width * columns
    else:
        width = wide if n % wide == 0 else 1
        steps = -(-k // num_threads_y)
        reads = steps * (1 + columns / width)
        spread = 1.0
        meet = SYNC_CYCLES + (2 + num_threads_y / 4) * SHARED_LATENCY
        multiply_adds = steps * columns
    transfer = max(1.0, width * element * WARP / 128)
    return Work(
        threads=num_threads_x * num_threads_y * matrices,
        tiles_m=1,
        tiles_n=-(-n // (num_threads_x * columns)),
        loads=reads * spread * transfer,
        latency=-(-steps // unroll) * MEMORY_LATENCY + meet,
        multiply_adds=multiply_adds,
        matrices=matrices,
    )


def of_tile(problem: Problem, shape: Tile) -> Work:
    """A tile that is staged in shared memory: ``cuda_small``, ``cuda_tile``, ``cuda_generic``."""
    m, n, k = problem.extents()
    chunks = -(-k // shape.tile_k)
    steps = chunks * shape.tile_k
    sides = (
        (shape.lhs_stage(problem.lhs), shape.tile_m),
        (shape.rhs_stage(problem.rhs), shape.tile_n),
    )
    deep = deep_reads(problem, shape)
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
    return Work(
        threads=shape.threads,
        tiles_m=across_tiles(m, shape.rows),
        tiles_n=across_tiles(n, shape.columns),
        loads=loads,
        latency=arrive + multiply + chunks * SYNC_CYCLES,
        multiply_adds=steps * sums,
        matrices=shape.matrices,
    )


def deep_reads(problem: Problem, shape: Tile) -> int:
    """Steps of K whose operands a thread of a tile holds at once."""
    return shape.vector_width if "k" in (problem.lhs, problem.rhs) else 1


def of_mma(problem: Problem, shape: MmaTile) -> Work:
    """``cuda_mma``: copies, fragments and instructions."""
    m, n, k = problem.extents()
    chunks = -(-k // shape.tile_k)
    steps = chunks * shape.tile_k // MMA_K
    copies = 0.0
    for stage, extent in (
        (shape.lhs_stage(problem.lhs), k if problem.lhs == "k" else m),
        (shape.rhs_stage(problem.rhs), k if problem.rhs == "k" else n),
    ):
        lanes = 8 if extent % 8 == 0 else 1
        pieces = chunks * stage.outer * stage.inner / lanes / shape.threads
        copies += pieces * (4.0 if lanes == 8 else 2.0)
    fragments = steps * (shape.tile_m * 4 + shape.tile_n * 2)
    multiply = steps * (SHARED_LATENCY + shape.tile_m * shape.tile_n * MMA_CYCLES)
    arrive = MEMORY_LATENCY + (chunks - 1) * max(0.0, MEMORY_LATENCY - multiply / chunks)
    return Work(
        threads=shape.threads,
        tiles_m=across_tiles(m, shape.rows),
        tiles_n=across_tiles(n, shape.columns),
        loads=copies + fragments,
        latency=arrive + multiply + chunks * SYNC_CYCLES,
        mma_instructions=steps * shape.tile_m * shape.tile_n,
    )


def small_shape(
    m: int,
    n: int,
    *,
    matrices: int,
    tile_m: int,
    tile_n: int,
    tile_k: int,
    vector_width: int,
    copies_async: int,
) -> Tile:
    """The tile of ``cuda_small``: whole products."""
    threads = -(-m // tile_m), -(-n // tile_n)
    return Tile(*threads, tile_m, tile_n, tile_k, vector_width, bool(copies_async), matrices)


def tile_shape(
    *,
    num_threads_y: int,
    num_threads_x: int,
    tile_m: int,
    tile_n: int,
    tile_k: int,
    vector_width: int,
    copies_async: int,
) -> Tile:
    """The tile of ``cuda_tile``."""
    threads = num_threads_y, num_threads_x
    return Tile(*threads, tile_m, tile_n, tile_k, vector_width, bool(copies_async))


def _of_small(problem: Problem, knobs: Mapping[str, Any]) -> Work:
    m, n, _ = problem.extents()
    return of_tile(problem, small_shape(m, n, **knobs))


# Knobs as manifests have them, for each rule whose extents are fixed.
_RULES: Mapping[str, Callable[..., Work]] = {
    "cuda_thread": of_thread,
    "cuda_vector": of_vector,
    "cuda_mma": lambda problem, **knobs: of_mma(problem, MmaTile(**knobs)),
    "cuda_small": lambda problem, **knobs: _of_small(problem, knobs),
    "cuda_tile": lambda problem, **knobs: of_tile(problem, tile_shape(**knobs)),
}


def of_config(problem: Problem, config: Mapping[str, Any]) -> Work:
    """The work of a kernel of a manifest.

    Parameters
    ----------
    problem
        What it computes, with fixed extents.
    config
        How: ``rule`` and that rule's knobs.

    Raises
    ------
    ValueError
        If the rule, or one of its knobs, is not one of this version.
    """
    knobs = dict(config)
    rule = knobs.pop("rule", None)
    count = _RULES.get(str(rule))
    if count is None:
        expected = ", ".join(_RULES)
        raise ValueError(f"rule {rule!r} of {problem}: expected one of {expected}")
    try:
        return count(problem, **knobs)
    except TypeError as error:
        raise ValueError(f"config of {problem}: {error}; generate the pack again") from error
