"""First-principles time of a kernel on a GPU. Needs no TVM.

A kernel is bound by the memory's bandwidth, by the instructions of its busiest multiprocessor, or
by the latency of one thread's chain of loads. What a launch costs is the same for all, and is left
out.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..elements import ELEMENT_BYTES
from ..problem import Problem
from .targets import WARP, CudaTarget, Machine
from .tile_shape import MMA_K, MMA_M, MMA_N
from .work import Work

BATCH = 256
"""Matrices of the batch that costs are compared for: 16 sentences by 16 heads."""

LIMITS = ("memory", "multiply", "load", "latency")
"""What may bind a kernel: memory's bandwidth, the units that multiply, loads from shared memory
and the first cache, or waiting with nothing else to do."""

_REGISTER_UNIT = 256  # a warp is given whole units of so many registers
_WARP_UNIT = 4  # and a multiprocessor whole groups of so many warps: one for each of its parts


def resident_blocks(machine: Machine, threads: int, registers: int, shared_bytes: int) -> int:
    """Blocks that run on a multiprocessor at a time, at least one.

    As in "Occupancy" of the CUDA C++ Best Practices Guide and the calculator of Nsight Compute.

    Parameters
    ----------
    machine
        The GPU.
    threads, shared_bytes
        Of a block.
    registers
        Of a thread.
    """
    warps = -(-threads // WARP)
    of_warp = -(-max(registers, 1) * WARP // _REGISTER_UNIT) * _REGISTER_UNIT
    by_registers = machine.registers // of_warp // _WARP_UNIT * _WARP_UNIT // warps
    taken = shared_bytes + machine.reserved_shared_bytes
    taken = -(-taken // machine.shared_unit) * machine.shared_unit
    by_shared = machine.shared_bytes // taken if taken else machine.blocks
    return max(1, min(machine.blocks, machine.threads // (warps * WARP), by_registers, by_shared))


@dataclass(frozen=True)
class Bounds:
    """How long each limit alone would make a batch take.

    Attributes
    ----------
    memory
        Nanoseconds of moving bytes between memory and the second cache.
    multiply, load
        Cycles of the busiest multiprocessor: of its multiply-adds, of its loads.
    latency
        Cycles of one thread's chain, for as often as the GPU is filled with blocks.
    gigahertz
        Of the cycles.
    """

    memory: float
    multiply: float
    load: float
    latency: float
    gigahertz: float

    def nanoseconds(self, limit: str) -> float:
        """Time of one of :data:`LIMITS`."""
        value: float = getattr(self, limit)
        return value if limit == "memory" else value / self.gigahertz

    @property
    def limit(self) -> str:
        """The one that takes longest."""
        return max(LIMITS, key=self.nanoseconds)

    @property
    def time(self) -> float:
        """Nanoseconds with all limits: the longest, and a tenth of what it does not wholly hide."""
        issue = max(self.load, self.multiply)
        cycles = max(issue, self.latency) + 0.1 * min(issue, self.latency)
        busy = cycles / self.gigahertz
        return max(self.memory, busy) + 0.1 * min(self.memory, busy)


def bounds(
    work: Work,
    machine: Machine,
    *,
    batch: int,
    bytes_moved: float,
    resident: int,
    float64: bool = False,
) -> Bounds:
    """The limits of a kernel for ``batch`` matrices.

    Parameters
    ----------
    work
        What the kernel does.
    machine
        The GPU.
    batch
        Number of matrices.
    bytes_moved
        Between memory and the second cache.
    resident
        Blocks that run on a multiprocessor at a time: see :func:`resident_blocks`.
    float64
        Whether the multiply-adds are in double precision.
    """
    total = work.blocks(batch)
    waves = -(-total // (resident * machine.multiprocessors))
    # The busiest multiprocessor has whole blocks to run.
    warps = -(-total // machine.multiprocessors) * -(-work.threads // WARP)
    lanes = machine.float64_lanes if float64 else machine.float32_lanes
    multiply = work.multiply_adds / (lanes / WARP)
    multiply += work.mma_instructions * (MMA_M * MMA_N * MMA_K / machine.tensor_lanes)
    return Bounds(
        memory=bytes_moved / machine.gigabytes_per_second,
        multiply=warps * multiply,
        load=warps * (work.loads / machine.loads_per_cycle),
        latency=waves * work.latency,
        gigahertz=machine.gigahertz,
    )


def nanoseconds(
    problem: Problem, target: CudaTarget, work: Work, *, shared_bytes: int = 0, registers: int = 32
) -> float:
    """Expected time for :data:`BATCH` matrices, before there is a kernel.

    Absolute times do not matter here: they rank the configs of one problem.

    Parameters
    ----------
    problem, target
        What is computed where.
    work
        What the kernel would do.
    shared_bytes, registers
        Of a block, and of a thread, as far as one can tell: they limit how many run at a time.
    """
    m, n, k = problem.extents()
    # Tiles of one matrix run side by side: what they share comes from the second cache.
    bytes_moved = BATCH * ELEMENT_BYTES[problem.dtype] * (m * k + k * n + m * n)
    return bounds(
        work,
        target.machine,
        batch=BATCH,
        bytes_moved=bytes_moved,
        resident=resident_blocks(target.machine, work.threads, registers, shared_bytes),
        float64=problem.dtype == "float64",
    ).time
