"""Products of 16-bit floats in the CPU's tile registers (Intel AMX).

A block of ``tile_m`` x ``tile_n`` tiles of sums stays in registers for all of K. ``rhs`` goes to
the workspace as pairs of rows, a block of columns at a time; ``lhs`` is read where it lies, unless
it is contiguous in M; what K leaves over 32 is copied with zeros behind it. Rows and columns that
are no multiple of 16 are covered by a last tile that overlaps its neighbour; below 16 rows tiles
are lower, below 16 columns the rest is not stored. Sums go through the workspace to vector
registers, to be scaled, added to and rounded there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from .. import microkernel
from ..compute import Matrix
from ..microkernel import Columns
from ..problem import Problem
from ..targets import Target
from ..vectors import Index, int64, splat, transpose, vector_type
from . import amx, cost
from .amx import COLUMNS, DEPTH, PAIR, ROW_BYTES, ROWS, TILE_REGISTERS, Tiles
from .cpu_broadcast import Run, divide, for_each, for_each_column_block
from .rule import Config, Rule

_WORDS = ROW_BYTES // 4  # float32 in a row of a tile, the unit of the workspace's view
_ROWS_AT_ONCE = 4  # rows of sums finished together: their addend is loaded before it is needed


@dataclass(frozen=True)
class AmxConfig(Config):
    """Knobs of the tile block.

    Attributes
    ----------
    tile_m, tile_n
        Tiles of sums along M and along N.
    """

    tile_m: int
    tile_n: int

    def __post_init__(self) -> None:
        if min(self.tile_m, self.tile_n) < 1:
            raise ValueError(f"{self}: every knob is at least 1")
        if self.tile_m * self.tile_n + self.tile_m + self.tile_n > TILE_REGISTERS:
            raise ValueError(f"{self}: more than {TILE_REGISTERS} tiles")


@dataclass(frozen=True)
class _Panels:
    """Where what lies in the workspace, in float32 from its start."""

    steps: int
    width: int  # of the panel of rhs
    lhs: int
    lhs_steps: int  # those that lie in the panel of lhs, the last ones of all
    rhs: int
    end: int

    @classmethod
    def of(cls, problem: Problem, config: AmxConfig) -> _Panels:
        m, n, k = problem.extents()
        steps = -(-k // DEPTH)
        lhs_steps = steps if problem.lhs == "m" else steps - k // DEPTH
        width = min(config.tile_n, -(-n // COLUMNS)) * COLUMNS
        lhs = config.tile_m * config.tile_n * ROWS * COLUMNS
        rhs = lhs + lhs_steps * m * _WORDS
        return cls(steps, width, lhs, lhs_steps, rhs, rhs + steps * (DEPTH // PAIR) * width)


class CpuAmx(Rule[AmxConfig]):
    """See the module."""

    name = "cpu_amx"
    config_type = AmxConfig

    def refusal(self, problem: Problem, target: Target) -> str | None:
        """Needs fixed extents and a target whose tiles multiply the dtype."""
        reason = amx.refusal(problem, target)
        if reason is not None:
            return reason
        return "extents not fixed" if problem.is_generic else None

    def space(self, problem: Problem, target: Target) -> Iterator[AmxConfig]:
        """Blocks that fit the tile registers and are no larger than the product."""
        m, n, _ = problem.extents()
        for tile_m, tile_n in ((1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (2, 2)):
            if tile_m <= -(-m // ROWS) and tile_n <= -(-n // COLUMNS):
                yield AmxConfig(tile_m, tile_n)

    def cost(self, problem: Problem, target: Target, config: AmxConfig) -> float:
        """Cycles of the packing and of all blocks."""
        m, n, _ = problem.extents()
        row_tiles, column_tiles = -(-m // ROWS), -(-n // COLUMNS)
        panels = _Panels.of(problem, config)
        packed = column_tiles * panels.steps
        packed += row_tiles * panels.lhs_steps if problem.lhs == "m" else 0
        copied = 0 if problem.lhs == "m" else m * panels.lhs_steps
        blocks = sum(
            rows.count * columns.count * cost.amx_block(rows.size, columns.size, panels.steps)
            for rows in divide(row_tiles, config.tile_m)
            for columns in divide(column_tiles, config.tile_n)
        )
        packing = packed * cost.transpose_block(_WORDS) + copied / cost.STORES_PER_CYCLE
        return cost.AMX_CAUTION * (cost.AMX_CONFIGURE + packing + blocks)

    def workspace_bytes(self, problem: Problem, target: Target, config: AmxConfig) -> int:
        """A block of sums, what is copied of ``lhs``, and ``rhs`` for one block of columns."""
        return 4 * _Panels.of(problem, config).end

    def around(
        self, problem: Problem, target: Target, config: AmxConfig
    ) -> AbstractContextManager[None]:
        """Configure the tiles once for all matrices of a call."""
        return _tiles(problem, target, config).configured()

    def emit(self, matrix: Matrix, target: Target, config: AmxConfig) -> None:
        """Blocks of columns: pack each, then all its rows."""
        panels = _Panels.of(matrix.problem, config)
        tiles = _tiles(matrix.problem, target, config)
        rows = _cover(matrix.m, ROWS)
        if matrix.problem.lhs == "m":
            _pack_lhs(matrix, rows, panels)
        elif panels.lhs_steps:
            _copy_lhs(matrix, panels)

        def block_body(block: Sequence[Columns]) -> None:
            for j, columns in enumerate(block):
                pack = _interleave_rhs if matrix.problem.rhs == "n" else _transpose_rhs
                pack(matrix, columns, panels, j * COLUMNS)
            for_each_column_block(
                rows, config.tile_m, lambda strip: _block(matrix, tiles, strip, block, panels)
            )

        for_each_column_block(_cover(matrix.n, COLUMNS), config.tile_n, block_body)


def _tiles(problem: Problem, target: Target, config: AmxConfig) -> Tiles:
    m, _, _ = problem.extents()
    return Tiles(config.tile_m, config.tile_n, min(m, ROWS), problem.dtype, target.emulated)


def _cover(extent: int, size: int) -> list[Columns]:
    """Rows or columns, a tile's worth each; the last may overlap its neighbour."""
    if extent < size:
        return [Columns(0, size, extent)]
    return microkernel.cover(extent, size)


def _block(
    matrix: Matrix,
    tiles: Tiles,
    rows: Sequence[Columns],
    columns: Sequence[Columns],
    panels: _Panels,
) -> None:
    """One block of sums, from zero to ``out``."""
    height = len(rows)
    for i in range(height):
        for j in range(len(columns)):
            tiles.zero(tiles.sums(i, j))

    def load_rhs(step: Index, j: int) -> None:
        index = panels.rhs + step * (DEPTH // PAIR * panels.width) + j * COLUMNS
        tiles.load(tiles.rhs(j), matrix.workspace, index, panels.width * 4)

    def load_lhs(step: Index, i: int) -> None:
        index = matrix.lhs_index(rows[i].start, step * DEPTH)
        tiles.load(tiles.lhs(i), matrix.lhs, index, matrix.lhs_stride * PAIR)

    def load_packed_lhs(step: Index, i: int) -> None:
        packed = step - (panels.steps - panels.lhs_steps)
        index = panels.lhs + (packed * matrix.m + rows[i].start) * _WORDS
        tiles.load(tiles.lhs(i), matrix.workspace, index, ROW_BYTES)

    def multiply(step: Index, load: Any) -> None:
        for j in range(len(columns)):
            load_rhs(step, j)
            for i in range(height):
                if j == 0:
                    load(step, i)
                tiles.dot(i, j)

    direct = panels.steps - panels.lhs_steps
    microkernel.steps(direct, 2, lambda step, _: multiply(step, load_lhs))
    microkernel.steps(panels.lhs_steps, 2, lambda step, _: multiply(direct + step, load_packed_lhs))
    for i in range(height):
        for j in range(len(columns)):
            place = int64(tiles.sums(i, j) * ROWS * COLUMNS)
            tiles.store(tiles.sums(i, j), matrix.workspace, place, ROW_BYTES)
    for i, strip in enumerate(rows):
        for run in divide(tiles.rows, _ROWS_AT_ONCE):

            def finish(first: Index, i: int = i, strip: Columns = strip, run: Run = run) -> None:
                cells = []
                for row in range(run.size):
                    for j, c in enumerate(columns):
                        place = tiles.sums(i, j) * ROWS * COLUMNS + (first + row) * COLUMNS
                        value = matrix.workspace.load(place, COLUMNS)
                        cells.append((strip.start + first + row, c, value))
                microkernel.finish(matrix, cells)

            for_each(run, finish)


def _copy_lhs(matrix: Matrix, panels: _Panels) -> None:
    """What K leaves over whole steps, with zeros behind it, of ``lhs`` contiguous in K."""
    start = (panels.steps - 1) * DEPTH
    left = matrix.k - start
    with T.serial(int64(0), int64(matrix.m)) as row:
        raw = matrix.lhs.load_raw(matrix.lhs_index(row, start), DEPTH, left)
        _store(matrix, panels.lhs + row * _WORDS, raw)


def _pack_lhs(matrix: Matrix, rows: Sequence[Columns], panels: _Panels) -> None:
    """All of ``lhs``, contiguous in M: rows of pairs along K."""

    def pack(strip: Columns, step: Index, left: int) -> None:
        def row(k: int) -> Any:
            index = matrix.lhs_index(strip.start, step * DEPTH + k)
            return matrix.lhs.load_raw(index, ROWS, strip.valid)

        pairs = [_words(value) for value in _pairs(row, left)]
        for i, words in enumerate(transpose(pairs, ROWS)):
            if strip.valid is None or i < strip.valid:
                place = panels.lhs + (step * matrix.m + strip.start + i) * _WORDS
                matrix.workspace.store(place, words, _WORDS)

    def strips(block: Sequence[Columns]) -> None:
        (strip,) = block
        _each_step(matrix.k, lambda step, left: pack(strip, step, left))

    for_each_column_block(rows, 1, strips)


def _interleave_rhs(matrix: Matrix, columns: Columns, panels: _Panels, position: int) -> None:
    """Pairs of rows of ``rhs``, contiguous in N."""

    def pack(step: Index, left: int) -> None:
        def row(k: int) -> Any:
            index = matrix.rhs_index(step * DEPTH + k, columns.start)
            return matrix.rhs.load_raw(index, COLUMNS, columns.valid)

        for pair, words in enumerate(_pairs(row, left)):
            _store(matrix, _rhs_place(panels, step, pair, position), words)

    _each_step(matrix.k, pack)


def _transpose_rhs(matrix: Matrix, columns: Columns, panels: _Panels, position: int) -> None:
    """Pairs of ``rhs``, contiguous in K. Columns outside the matrix repeat the last one inside."""
    inside = COLUMNS if columns.valid is None else columns.valid

    def pack(step: Index, left: int) -> None:
        rows = []
        for i in range(COLUMNS):
            index = matrix.rhs_index(step * DEPTH, columns.start + min(i, inside - 1))
            raw = matrix.rhs.load_raw(index, DEPTH, left if left < DEPTH else None)
            rows.append(_words(raw))
        for pair, words in enumerate(transpose(rows, COLUMNS)):
            matrix.workspace.store(_rhs_place(panels, step, pair, position), words, COLUMNS)

    _each_step(matrix.k, pack)


def _rhs_place(panels: _Panels, step: Index, pair: int, position: int) -> Any:
    return panels.rhs + (step * (DEPTH // PAIR) + pair) * panels.width + position


def _each_step(k: int, body: Any) -> None:
    """``body(step, left)`` for each step along K; ``left`` is less than DEPTH in the last one."""
    whole, left = divmod(k, DEPTH)
    for_each(Run(0, 1, whole), lambda step: body(step, DEPTH))
    if left:
        body(int64(whole), left)


def _pairs(row: Any, left: int) -> Iterator[Any]:
    """Rows ``2 i`` and ``2 i + 1`` interleaved, for each pair of a step; zeros from ``left`` on."""
    words = vector_type("uint32", COLUMNS)
    for first in range(0, DEPTH, PAIR):
        value = splat(tirx.IntImm("uint32", 0), COLUMNS)
        if first < left:
            value = tirx.Cast(words, row(first))
        if first + 1 < left:
            shift = splat(tirx.IntImm("uint32", 16), COLUMNS)
            value = value | (tirx.Cast(words, row(first + 1)) << shift)
        yield T.Bind(value)


def _words(raw: Any) -> Any:
    """As float32, which are shuffled in one instruction."""
    return T.Bind(tirx.reinterpret(vector_type("float32", _WORDS), raw))


def _store(matrix: Matrix, index: Any, raw: Any) -> None:
    matrix.workspace.store(index, _words(raw), _WORDS)
