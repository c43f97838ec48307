"""Functions of ``device.cuh`` that kernels call, as TensorIR expressions and statements.

The emulator has its own definitions of them, in ``kernels/emulate/device.h``.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

PREFIX = "tvmop_"


def _call(dtype: str, name: str, *arguments: Any) -> Any:
    return tirx.call_extern(dtype, PREFIX + name, *arguments)


def widen(value: Any, dtype: str) -> Any:
    """From the type in memory to the compute type; exact."""
    if dtype in ("float16", "bfloat16"):
        return _call("float32", f"from_{dtype}", value)
    return value


def narrow(value: Any, dtype: str) -> Any:
    """From the compute type to the type in memory, to nearest even."""
    if dtype in ("float16", "bfloat16"):
        return _call("uint16", f"to_{dtype}", value)
    return value


def pair_element(value: Any, position: int, dtype: str) -> Any:
    """One of the two 16-bit elements in a 32-bit word, in the compute type."""
    return _call("float32", f"{('low', 'high')[position]}_{dtype}", value)


def read(target: Any, source: Any, lanes: int, dtype: str) -> None:
    """Read neighbouring elements of ``dtype`` at once, from an aligned address.

    ``target`` is where in an array of the thread they go to, in the compute type.
    """
    T.evaluate(_call("void", f"read_{dtype}x{lanes}", target, source))


def is_aligned(address: Any, stride: Any, elements: int, element_bytes: int) -> Any:
    """Whether rows that are ``stride`` elements apart can be read ``elements`` at once."""
    return _call(
        "bool",
        "is_aligned",
        address,
        stride * tirx.IntImm("int64", element_bytes),
        tirx.IntImm("int32", elements * element_bytes),
    )


def shuffle_xor(value: Any, lane: int, dtype: str) -> Any:
    """``value`` of the thread of the warp whose index differs in the bits ``lane``."""
    return _call(dtype, "shuffle_xor", value, tirx.IntImm("int32", lane))


def copy_async(target: Any, source: Any, size: int, valid: Any) -> None:
    """Begin to copy ``size`` bytes to shared memory: zeros instead where ``valid`` is false."""
    T.evaluate(_call("void", f"copy_async_{size}", target, source, valid))


def commit() -> None:
    """Close a group of copies."""
    T.evaluate(_call("void", "copy_async_commit"))


def wait(groups: int) -> None:
    """Wait until at most ``groups`` groups of copies are under way."""
    T.evaluate(_call("void", f"copy_async_wait_{groups}"))


def load_fragments(target: Any, source: Any, count: int, *, transposed: bool) -> None:
    """``ldmatrix``: ``count`` blocks of 8x8 16-bit elements, whose rows the lanes point to."""
    suffix = "_transposed" if transposed else ""
    T.evaluate(_call("void", f"load_fragments_{count}{suffix}", target, source))


def multiply_add(total: Any, lhs: Any, rhs: Any, dtype: str) -> None:
    """``mma.m16n8k16``: add the product of two fragments to four float32 of each lane."""
    T.evaluate(_call("void", f"multiply_add_{dtype}", total, lhs, rhs))
