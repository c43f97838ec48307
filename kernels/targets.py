"""The machines that kernels are compiled for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .problem import DTYPES

_V3_FLAGS = frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"})
_V4_FLAGS = _V3_FLAGS | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


@dataclass(frozen=True)
class Target:
    """A CPU level.

    Attributes
    ----------
    name
        As in manifests and on the command line.
    mcpu
        LLVM's name of the level.
    vector_bits
        Width of a vector register.
    vector_registers
        Number of them.
    cpu_flags
        What the CPU must offer, in the words of ``/proc/cpuinfo``.
    llvm_features
        What LLVM may use beyond ``mcpu``.
    dtypes
        Those that the target is better for than the one before it in :data:`TARGETS`; its image
        holds kernels for no others.
    """

    name: str
    mcpu: str
    vector_bits: int
    vector_registers: int
    cpu_flags: frozenset[str]
    llvm_features: str = ""
    dtypes: frozenset[str] = frozenset(DTYPES)

    @property
    def multiplies_bfloat16(self) -> bool:
        """Whether there is an instruction that multiplies bfloat16 and sums in float32."""
        return "avx512_bf16" in self.cpu_flags

    def lanes(self, dtype: str) -> int:
        """Elements in one vector register while computing with ``dtype``."""
        return self.vector_bits // (64 if dtype == "float64" else 32)

    def runs_here(self) -> bool:
        """Whether this machine's CPU and operating system can run the target's code."""
        return self.cpu_flags <= host_cpu_flags()

    def __str__(self) -> str:
        return self.name


TARGETS = {
    target.name: target
    for target in (
        Target("cpu:x86-64-v3", "x86-64-v3", 256, 16, _V3_FLAGS),
        Target("cpu:x86-64-v4", "x86-64-v4", 512, 32, _V4_FLAGS),
        Target(
            "cpu:x86-64-v4-bf16",
            "x86-64-v4",
            512,
            32,
            _V4_FLAGS | {"avx512_bf16"},
            "+avx512bf16",
            frozenset({"bfloat16"}),
        ),
    )
}


def parse_target(name: str) -> Target:
    """The target of that name.

    Raises
    ------
    ValueError
        If there is none; the message lists those there are.
    """
    try:
        return TARGETS[name]
    except KeyError:
        raise ValueError(f"unknown target {name!r}: expected one of {', '.join(TARGETS)}") from None


def host_cpu_flags() -> frozenset[str]:
    """The features of this machine's CPU that its operating system has enabled."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return frozenset()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return frozenset(value.split())
    return frozenset()
