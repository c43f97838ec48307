"""The GPU architectures that kernels are compiled for.

Figures are those of NVIDIA's CUDA C++ Programming Guide, section "Compute Capabilities", and of the
data sheets of one common card of each architecture; the latter only rank configs.
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
class CudaTarget:
    """A GPU architecture.

    Attributes
    ----------
    capability
        Compute capability times ten: 80 for 8.0.
    is_virtual
        Whether the image holds PTX, which the driver compiles when it is loaded, for GPUs that
        came later than every other target.
    registers, shared_bytes, threads
        Of one multiprocessor (SM), which the blocks running on it share.
    multiprocessors
        Of a common card.
    gigabytes_per_second
        What that card's memory delivers.
    """

    capability: int
    registers: int
    shared_bytes: int
    threads: int
    multiprocessors: int
    gigabytes_per_second: int
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
    def copies_async(self) -> bool:
        """Whether memory is copied to shared memory without passing through registers."""
        return self.capability >= 80

    @property
    def multiplies_matrices(self) -> bool:
        """Whether there is ``mma.m16n8k16`` for float16 and bfloat16."""
        return self.capability >= 80

    def __str__(self) -> str:
        return self.name


CUDA_TARGETS = {
    target.name: target
    for target in (
        CudaTarget(70, 65536, 96 << 10, 2048, 80, 900),
        CudaTarget(75, 65536, 64 << 10, 1024, 40, 320),
        CudaTarget(80, 65536, 164 << 10, 2048, 108, 1555),
        CudaTarget(86, 65536, 100 << 10, 1536, 84, 768),
        CudaTarget(89, 65536, 100 << 10, 1536, 142, 864),
        CudaTarget(90, 65536, 228 << 10, 2048, 132, 4800),
        CudaTarget(100, 65536, 228 << 10, 2048, 148, 8000),
        CudaTarget(120, 65536, 100 << 10, 1536, 188, 1792),
        CudaTarget(80, 65536, 100 << 10, 1536, 108, 1555, is_virtual=True),
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
