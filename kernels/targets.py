"""The machines that kernels are compiled for."""

from __future__ import annotations

import ctypes
import platform
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from .problem import DTYPES

_V3_FLAGS = frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"})
_TILE_DTYPES = {"amx_bf16": "bfloat16", "amx_fp16": "float16"}
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
    base
        Name of the target that serves what this one is no better for: its image holds only kernels
        by rules that are not chosen there. ``""`` if the image holds everything.
    emulated
        Whether memory stands in for tile registers, so that a kernel's results can be checked
        without them.
    """

    name: str
    mcpu: str
    vector_bits: int
    vector_registers: int
    cpu_flags: frozenset[str]
    llvm_features: str = ""
    dtypes: frozenset[str] = frozenset(DTYPES)
    base: str = ""
    emulated: bool = False

    @property
    def multiplies_bfloat16(self) -> bool:
        """Whether there is an instruction that multiplies bfloat16 and sums in float32."""
        return "avx512_bf16" in self.cpu_flags

    @property
    def tile_dtypes(self) -> frozenset[str]:
        """The types that there is an instruction for that multiplies tiles of them (AMX)."""
        return frozenset(_TILE_DTYPES[flag] for flag in _TILE_DTYPES.keys() & self.cpu_flags)

    def lanes(self, dtype: str) -> int:
        """Elements in one vector register while computing with ``dtype``."""
        return self.vector_bits // (64 if dtype == "float64" else 32)

    def runs_here(self) -> bool:
        """Whether this machine's CPU and operating system can run the target's code."""
        return self.cpu_flags <= host_cpu_flags() and (not self.tile_dtypes or request_tiles())

    def emulation(self) -> Target | None:
        """The target that gives the same results on this machine, by emulation; None if none does.

        Kernels for it differ from this one's in the instructions that are emulated alone.
        """
        if not self.tile_dtypes:
            return None
        for level in ("x86-64-v4", "x86-64-v3"):
            if TARGETS[f"cpu:{level}"].runs_here():
                name = f"{self.name} emulated by {level}"
                return replace(self, name=name, mcpu=level, llvm_features="", emulated=True)
        return None

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
        Target(
            "cpu:x86-64-v4-amx-bf16",
            "x86-64-v4",
            512,
            32,
            _V4_FLAGS | {"avx512_bf16", "amx_tile", "amx_bf16"},
            "+avx512bf16,+amx-tile,+amx-bf16",
            frozenset({"bfloat16"}),
            base="cpu:x86-64-v4-bf16",
        ),
        Target(
            "cpu:x86-64-v4-amx-fp16",
            "x86-64-v4",
            512,
            32,
            _V4_FLAGS | {"amx_tile", "amx_fp16"},
            "+amx-tile,+amx-fp16",
            frozenset({"float16"}),
            base="cpu:x86-64-v4",
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


@cache
def request_tiles() -> bool:
    """Ask Linux to let this process use tile registers (AMX); False if it does not.

    As ``cc/dispatch/cpu_features.cc`` does before it opens an image that uses them.
    """
    system_call, request, tile_data = 158, 0x1023, 18  # arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    function = ctypes.CDLL(None).syscall
    function.restype = ctypes.c_long
    return int(function(*map(ctypes.c_long, (system_call, request, tile_data)))) == 0
