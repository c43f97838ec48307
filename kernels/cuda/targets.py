"""The GPU architectures that kernels are compiled for.

Figures are those of NVIDIA's CUDA C++ Programming Guide, section "Compute Capabilities", and of the
data sheets of common cards.
"""

from __future__ import annotations

from dataclasses import dataclass

PREFIX = "cuda:"

WARP = 32
MAX_THREADS = 1024
MAX_SHARED_BYTES = 48 * 1024
"""Shared memory of a block that is allocated statically, on every architecture."""

MAX_REGISTERS = 255
"""Registers of one thread."""

MAX_GRID = 2**31 - 1
"""Blocks of a launch along x. Along y and z there are 65,535, which nothing here uses."""


@dataclass(frozen=True)
class Machine:
    """What the cost model knows of a GPU.

    Attributes
    ----------
    registers, shared_bytes, threads, blocks
        Of one multiprocessor (SM): what blocks running on it share, and how many may.
    multiprocessors
        Number of them.
    gigabytes_per_second
        What memory delivers.
    gigahertz
        Clock of the multiprocessors.
    float32_lanes, float64_lanes, tensor_lanes
        Multiply-adds of one multiprocessor in a cycle: in single and in double precision, and of
        16-bit floats on tensor cores.
    loads_per_cycle
        Warps' loads of 128 bytes from shared memory or the first cache, of one multiprocessor.
    reserved_shared_bytes, shared_unit
        Shared memory that the system takes of each block, and what it is handed out in.
    """

    registers: int
    shared_bytes: int
    threads: int
    multiprocessors: int
    gigabytes_per_second: float
    blocks: int = 32
    gigahertz: float = 1.4
    float32_lanes: float = 128
    float64_lanes: float = 64
    tensor_lanes: float = 1024
    loads_per_cycle: float = 1.0
    reserved_shared_bytes: int = 1024
    shared_unit: int = 128


# One model for all architectures with the same instructions, of the least that they have: they
# choose the same kernels then, which are made and checked once. Measuring on a card may tell more.
_VOLTA = Machine(65536, 64 << 10, 1024, 80, 900)  # sm_70 (V100), sm_75 (T4)
_AMPERE = Machine(65536, 100 << 10, 1536, 108, 1555)  # sm_80 (A100) and up

_PTX_CAPABILITIES = (70, 80, 100)


@dataclass(frozen=True)
class CudaTarget:
    """A GPU architecture.

    Attributes
    ----------
    capability
        Compute capability times ten: 80 for 8.0.
    is_virtual
        Whether the image holds PTX, which the driver compiles when it is loaded, for GPUs that
        came later than every other target.
    """

    capability: int
    is_virtual: bool = False

    @property
    def arch(self) -> str:
        """As the compiler has it: ``sm_80``, or ``compute_80`` for PTX."""
        return f"{'compute' if self.is_virtual else 'sm'}_{self.capability}"

    @property
    def name(self) -> str:
        """As in manifests and on the command line."""
        return PREFIX + self.arch

    @property
    def ptx_capability(self) -> int:
        """The capability whose PTX is assembled for it, times ten.

        NVIDIA's compiler makes the same PTX for all architectures between two of these, but for
        the numbers of registers: see docs/architecture.md.
        """
        return max(least for least in _PTX_CAPABILITIES if least <= self.capability)

    @property
    def alike(self) -> CudaTarget:
        """The least architecture for which rules and their costs are the same."""
        return CudaTarget(80 if self.capability >= 80 else 70)

    @property
    def machine(self) -> Machine:
        """What the cost model takes it for."""
        return _AMPERE if self.capability >= 80 else _VOLTA

    @property
    def copies_async(self) -> bool:
        """Whether memory is copied to shared memory without passing through registers."""
        return self.capability >= 80

    @property
    def multiplies_matrices(self) -> bool:
        """Whether there is ``mma.m16n8k16`` for float16 and bfloat16."""
        return self.capability >= 80

    def runs_on(self, capability: int) -> bool:
        """Whether a GPU of that compute capability, times ten, can load the image.

        Machine code runs on what has the same major capability and no lesser minor one, PTX on
        everything later.
        """
        same = self.is_virtual or capability // 10 == self.capability // 10
        return same and capability >= self.capability

    def __str__(self) -> str:
        return self.name


CUDA_TARGETS = {
    target.name: target
    for target in (
        *(CudaTarget(capability) for capability in (70, 75, 80, 86, 89, 90, 100, 120)),
        CudaTarget(80, is_virtual=True),
    )
}


def is_cuda(name: str) -> bool:
    """Whether a target's name is that of a GPU, known or not."""
    return name.startswith(PREFIX)


def parse_cuda_target(name: str) -> CudaTarget:
    """The target of that name. An architecture that is not in the table is never guessed.

    Raises
    ------
    ValueError
        If there is none; the message lists those there are.
    """
    try:
        return CUDA_TARGETS[name]
    except KeyError:
        expected = ", ".join(CUDA_TARGETS)
        raise ValueError(f"unknown target {name!r}: expected one of {expected}") from None
