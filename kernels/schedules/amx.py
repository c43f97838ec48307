"""Tiles: 16 x 16 sums of products of 16-bit pairs in one instruction (Intel AMX).

``tdpbf16ps`` and ``tdpfp16ps`` multiply a tile of up to 16 rows of 32 elements of ``lhs`` by one of
16 pairs of rows of 16 columns of ``rhs``, and sum in float32. (AVX512-FP16, by contrast, sums in
float16, which is less than what kernels promise: nothing here uses it.)

Instructions are wrapped in functions given as LLVM IR and inlined where they are called: the CPU's
own, or, for a target that is emulated, stand-ins that do the same to memory
(:mod:`.amx_emulation`). Everything else of a kernel is alike in both.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from ..problem import Problem
from ..targets import Target
from ..vectors import Index, View, int64
from . import amx_emulation

TILE_REGISTERS = 8
ROWS = 16
COLUMNS = 16
PAIR = 2
DEPTH = 32
"""Elements of K that one instruction multiplies."""

ROW_BYTES = 64
PALETTE = 1

DOT = {"bfloat16": "tdpbf16ps", "float16": "tdpfp16ps"}
"""The instruction that multiplies each element type."""

_CPU = {
    "configure": "llvm.x86.ldtilecfg",
    "release": "llvm.x86.tilerelease",
    "zero": "llvm.x86.tilezero",
    "load": "llvm.x86.tileloadd64",
    "store": "llvm.x86.tilestored64",
}


def refusal(problem: Problem, target: Target) -> str | None:
    """Why tiles are not for ``problem``, or None if they are."""
    if problem.dtype not in DOT:
        return "dtype without tile products"
    if problem.dtype not in target.tile_dtypes:
        return f"target without tile products of {problem.dtype}"
    return None


@dataclass(frozen=True)
class Tiles:
    """The tile registers of a kernel: ``tile_m * tile_n`` of sums, and those of the operands.

    Statements made by its methods belong inside :meth:`configured`.

    Attributes
    ----------
    tile_m, tile_n
        Tiles of ``lhs`` and of ``rhs`` at hand at a time.
    rows
        Rows of a tile of ``lhs`` and of sums.
    dtype
        Of the elements.
    emulated
        Whether memory stands in for the CPU's tiles.
    """

    tile_m: int
    tile_n: int
    rows: int
    dtype: str
    emulated: bool = False

    def __post_init__(self) -> None:
        if self.count > TILE_REGISTERS:
            raise ValueError(f"{self}: {self.count} tiles, there are {TILE_REGISTERS}")
        if not 1 <= self.rows <= ROWS:
            raise ValueError(f"{self}: expected 1 to {ROWS} rows")

    @property
    def count(self) -> int:
        """Tile registers in use."""
        return self.tile_m * self.tile_n + self.tile_m + self.tile_n

    def sums(self, i: int, j: int) -> int:
        """The tile of sums for rows ``i`` and columns ``j``."""
        return i * self.tile_n + j

    def lhs(self, i: int) -> int:
        """The tile of rows ``i`` of ``lhs``."""
        return self.tile_m * self.tile_n + i

    def rhs(self, j: int) -> int:
        """The tile of columns ``j`` of ``rhs``."""
        return self.tile_m * self.tile_n + self.tile_m + j

    def configuration(self) -> bytes:
        """What ``ldtilecfg`` reads: palette, bytes in a row and rows of each tile."""
        layout = bytearray(64)
        layout[0] = PALETTE
        for tile in range(self.count):
            layout[16 + 2 * tile] = ROW_BYTES
            # A row of rhs is a pair of rows of the matrix.
            layout[48 + tile] = DEPTH // PAIR if tile >= self.rhs(0) else self.rows
        return bytes(layout)

    @contextmanager
    def configured(self) -> Iterator[None]:
        """Set the registers up once for all statements inside, and give them back.

        Configuring takes a few hundred cycles; and while tiles hold something, the operating
        system saves 8 KiB more at each switch of threads.
        """
        with T.attr(tirx.IntImm("int32", 0), "pragma_import_llvm", self._llvm_ir()):
            self._call("configure")
            yield
            self._call("release")

    def zero(self, tile: int) -> None:
        """Set a tile to zero."""
        self._call(f"zero_{tile}")

    def load(self, tile: int, view: View, index: Index, stride_bytes: Index) -> None:
        """Read a tile whose first row lies at ``index``."""
        self._call(f"load_{tile}", tirx.address_of(view.buffer[index]), int64(stride_bytes))

    def store(self, tile: int, view: View, index: Index, stride_bytes: Index) -> None:
        """Write a tile; its first row goes to ``index``."""
        self._call(f"store_{tile}", tirx.address_of(view.buffer[index]), int64(stride_bytes))

    def dot(self, i: int, j: int) -> None:
        """Add the products of ``lhs(i)`` and ``rhs(j)`` to ``sums(i, j)``."""
        self._call(f"dot_{self.sums(i, j)}")

    @staticmethod
    def _call(function: str, *arguments: Any) -> None:
        T.evaluate(tirx.call_extern("void", f"tf_tvm_ops_tile_{function}", *arguments))

    def _llvm_ir(self) -> str:
        names = _CPU | {"dot": f"llvm.x86.{DOT[self.dtype]}"}
        declared = amx_emulation.llvm_ir(self.dtype)
        if self.emulated:
            names = {name: f"emulated_tile_{name}" for name in names}
        else:
            declared = f"""
declare void @{names["configure"]}(ptr)
declare void @{names["release"]}()
declare void @{names["zero"]}(i8 immarg)
declare void @{names["load"]}(i8 immarg, ptr, i64)
declare void @{names["store"]}(i8 immarg, ptr, i64)
declare void @{names["dot"]}(i8 immarg, i8 immarg, i8 immarg)
"""
        layout = "".join(f"\\{byte:02X}" for byte in self.configuration())
        functions = [
            _function("configure", f"call void @{names['configure']}(ptr @tile_layout)"),
            _function("release", f"call void @{names['release']}()"),
        ]
        for tile in range(self.count):
            functions.append(_function(f"zero_{tile}", f"call void @{names['zero']}(i8 {tile})"))
            for name in ("load", "store"):
                body = f"call void @{names[name]}(i8 {tile}, ptr %memory, i64 %stride)"
                functions.append(_function(f"{name}_{tile}", body, "ptr %memory, i64 %stride"))
        for i, j in itertools.product(range(self.tile_m), range(self.tile_n)):
            total = self.sums(i, j)
            body = f"call void @{names['dot']}(i8 {total}, i8 {self.lhs(i)}, i8 {self.rhs(j)})"
            functions.append(_function(f"dot_{total}", body))
        constant = f'@tile_layout = private constant [64 x i8] c"{layout}", align 64\n'
        return declared + constant + "".join(functions)


def _function(name: str, body: str, parameters: str = "") -> str:
    return f"""
define void @tf_tvm_ops_tile_{name}({parameters}) {{
  {body}
  ret void
}}
"""
