"""``vdpbf16ps``: two neighbouring bfloat16 products added to each float32 lane (AVX512-BF16).

The intrinsic takes vectors of LLVM's own bfloat type, which TVM's code generator does not make.
So it is wrapped in functions, given as LLVM IR and inlined where they are called, that take pairs
of elements as integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from ..problem import Problem
from ..targets import Target
from ..vectors import vector_type

PAIR = 2


def refusal(problem: Problem, target: Target) -> str | None:
    """Why the instruction is not for ``problem``, or None if it is."""
    if problem.dtype != "bfloat16":
        return "dtype not bfloat16"
    if not target.multiplies_bfloat16:
        return "target without bfloat16 products"
    return None


def pairs(raw: Any, lanes: int) -> Any:
    """``2 * lanes`` elements as they lie in memory, as ``lanes`` pairs."""
    return T.Bind(tirx.reinterpret(vector_type("int32", lanes), raw))


def multiply_pairs(total: Any, a: Any, b: Any, lanes: int) -> Any:
    """``total`` plus the products of both elements in each lane of ``a`` and ``b``."""
    return tirx.call_extern(vector_type("float32", lanes), _function(lanes), total, a, b)


@contextmanager
def instruction() -> Iterator[None]:
    """Statements inside may use :func:`multiply_pairs`."""
    with T.attr(tirx.IntImm("int32", 0), "pragma_import_llvm", _llvm_ir()):
        yield


def _function(lanes: int) -> str:
    return f"tf_tvm_ops_dpbf16ps_{32 * lanes}"


def _llvm_ir() -> str:
    functions = []
    for lanes in (4, 8, 16):
        vector, whole = f"<{lanes} x float>", f"<{lanes} x i32>"
        elements = f"<{PAIR * lanes} x bfloat>"
        intrinsic = f"@llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
        functions.append(
            f"""
declare {vector} {intrinsic}({vector}, {elements}, {elements})

define {vector} @{_function(lanes)}({vector} %total, {whole} %a, {whole} %b) {{
  %left = bitcast {whole} %a to {elements}
  %right = bitcast {whole} %b to {elements}
  %sum = call {vector} {intrinsic}({vector} %total, {elements} %left, {elements} %right)
  ret {vector} %sum
}}
"""
        )
    return "".join(functions)
