"""One row: a vector times a matrix, as in each step of decoding.

Every element of ``rhs`` is read once, so all that counts is to have enough reads under way. Reads
are 16 bytes wide where rows are aligned, and element by element elsewhere. Two forms:

- ``rhs`` contiguous in K (scores): ``num_threads_y`` lanes of a warp share a column, each with a
  part of K; their sums meet in shuffles. A thread works on ``columns`` columns at once.
- ``rhs`` contiguous in N (values): threads stand along N, and ``num_threads_y`` rows of them take
  every so many-th step of K; their sums meet in shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from ..cuda import cost, device
from ..cuda.function import (
    Block,
    Grid,
    Matrix,
    bind,
    int32,
    registers,
    shared,
    sync,
    unrolled,
)
from ..cuda.targets import MAX_THREADS, WARP, CudaTarget
from ..cuda.work import VECTOR_BYTES, of_vector
from ..elements import COMPUTE_DTYPES, ELEMENT_BYTES
from ..problem import Problem
from ..vectors import Index, int64
from .cuda_rule import CudaRule
from .rule import Config


@dataclass(frozen=True)
class VectorConfig(Config):
    """Knobs of a vector times a matrix.

    Attributes
    ----------
    num_threads_x, num_threads_y
        Threads along N and along K, of one matrix.
    columns
        Columns of a thread; as many as 16 bytes hold where ``rhs`` is contiguous in N.
    unroll
        Steps of K whose reads are under way together.
    matrices
        Matrices that a block computes.
    """

    num_threads_x: int
    num_threads_y: int
    columns: int
    unroll: int
    matrices: int

    def __post_init__(self) -> None:
        for name, value in self.to_json().items():
            if value < 1:
                raise ValueError(f"{name}={value}: expected at least 1")
        if self.threads % WARP or self.threads > MAX_THREADS:
            raise ValueError(
                f"{self}: {self.threads} threads, expected whole warps up to {MAX_THREADS}"
            )

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.num_threads_x * self.num_threads_y * self.matrices

    @property
    def width(self) -> int:
        """Columns of a block in each matrix."""
        return self.num_threads_x * self.columns


def lanes(problem: Problem) -> int:
    """Elements in 16 bytes."""
    return VECTOR_BYTES // ELEMENT_BYTES[problem.dtype]


class CudaVector(CudaRule[VectorConfig]):
    """See the module."""

    name = "cuda_vector"
    config_type = VectorConfig

    def refusal(self, problem: Problem, target: CudaTarget) -> str | None:
        """Needs one row, and fixed extents."""
        if problem.is_generic:
            return "extents not fixed"
        return None if problem.m == 1 else "m above 1"

    def space(self, problem: Problem, target: CudaTarget) -> Iterator[VectorConfig]:
        """Blocks of one to eight warps."""
        along_k = problem.rhs == "k"
        _, n, k = problem.extents()
        for y in (1, 2, 4, 8, 16, 32):
            if y > 1 and y >= 2 * k:
                continue
            for columns in (1, 2, 4) if along_k else (lanes(problem),):
                for x in (1, 2, 4, 8, 16, 32, 64, 128):
                    if x > 1 and (x // 2) * columns >= n:
                        continue
                    for matrices in (1, 2, 4, 8, 16, 32):
                        if x * y * matrices % WARP or x * y * matrices > 256:
                            continue
                        if matrices > 1 and x * columns < n:
                            continue
                        for unroll in (1, 2, 4):
                            if unroll == 1 or unroll * y <= 2 * k:
                                config = VectorConfig(x, y, columns, unroll, matrices)
                                if self.fits(problem, config):
                                    yield config

    def cost(self, problem: Problem, target: CudaTarget, config: VectorConfig) -> float:
        """That of the reads, and of the meeting of the sums."""
        _, n, k = problem.extents()
        extent = k if problem.rhs == "k" else n
        width = lanes(problem) if extent % lanes(problem) == 0 else 1
        return cost.nanoseconds(
            problem,
            target,
            of_vector(problem, **config.to_json()),
            shared_bytes=self.shared_bytes(problem, config),
            registers=32 + config.unroll * config.columns * width,
        )

    def shared_bytes(self, problem: Problem, config: VectorConfig) -> int:
        """Sums that meet, where threads of a column are of several warps."""
        if problem.rhs == "k":
            return 0
        size = ELEMENT_BYTES[COMPUTE_DTYPES[problem.dtype]]
        return config.matrices * config.num_threads_y * config.width * size

    def fits(self, problem: Problem, config: VectorConfig) -> bool:
        """Whether lanes that share a column are of one warp, and shared memory suffices."""
        if problem.rhs == "k" and config.num_threads_y > WARP:
            return False
        return super().fits(problem, config)

    def grid(self, m: Index, n: Index, k: Index, config: VectorConfig) -> Grid:
        """A block to some columns, or to some matrices."""
        return Grid(config.threads, -(-int(n) // config.width), config.matrices)

    def emit(self, block: Block, config: VectorConfig) -> None:
        """The form that fits ``rhs``."""
        size = config.num_threads_x * config.num_threads_y
        part = bind("part", tirx.truncdiv(block.thread, int32(size)))
        local = bind("local", block.thread - part * int32(size))
        matrix = block.matrix(part if config.matrices > 1 else int32(0))
        guard = matrix.valid if config.matrices > 1 else None
        if block.problem.rhs == "k":
            _along_k(block, matrix, guard, local, config)
        else:
            _along_n(block, matrix, guard, part, local, config)


def _in_vectors(matrix: Matrix, extent: int, *, lhs: bool) -> Any:
    """Whether 16 bytes are read at once: at run time, or None for never."""
    width = lanes(matrix.problem)
    if extent % width or width == 1:
        return None
    size = ELEMENT_BYTES[matrix.problem.dtype]

    def aligned(operand: Any, stride: Any) -> Any:
        address = T.address_of(operand.buffer[operand.offset])
        return device.is_aligned(address, stride, width, size)

    condition = aligned(matrix.rhs, matrix.rhs.stride)
    if lhs:  # one row: its stride does not matter
        condition = tirx.And(condition, aligned(matrix.lhs, int64(0)))
    return bind("in_vectors", condition)


def _either(condition: Any, wide: int, body: Any) -> None:
    """``body(lanes)`` for vectors where they may be, for elements elsewhere."""
    if condition is None:
        body(1)
        return
    with T.If(condition):
        with T.Then():
            body(wide)
        with T.Else():
            body(1)


def _read(values: Any, at: Any, operand: Any, place: tuple[Any, Any], width: int) -> None:
    """``width`` neighbouring elements into registers."""
    if width == 1:
        T.buffer_store(values, operand.load(*place), [at])
    else:
        target = T.address_of(values[at])
        device.read(target, operand.address(*place), width, operand.dtype)


def _when(condition: Any, body: Any) -> None:
    if condition is None:
        body()
    else:
        with T.If(condition), T.Then():
            body()


def _along_k(block: Block, matrix: Matrix, guard: Any, local: Any, config: VectorConfig) -> None:
    _, n, k = block.problem.extents()
    y, columns = config.num_threads_y, config.columns
    lane = bind("lane", tirx.truncmod(local, int32(y)))
    across = bind("across", tirx.truncdiv(local, int32(y)))
    first = bind("first_column", block.tile * int32(config.width) + across)
    sums = registers("sums", columns, block.dtype)
    with unrolled(columns) as j:
        T.buffer_store(sums, tirx.FloatImm(block.dtype, 0.0), [j])

    def column(j: Any) -> Any:
        return first + j * int32(config.num_threads_x)

    def accumulate(width: int) -> None:
        left = registers("left", width, block.dtype)
        right = registers("right", width, block.dtype)
        steps = -(-k // (y * width))
        unroll = {"pragma_unroll": config.unroll}
        with T.serial(int32(0), int32(steps), annotations=unroll) as step:
            position = bind("position", (step * int32(y) + lane) * int32(width))

            def one() -> None:
                _read(left, int32(0), matrix.lhs, (int32(0), position), width)
                with unrolled(columns) as j:
                    # A column beyond the last is the last one again, and is not written.
                    row = T.min(column(j), int32(n - 1))
                    _read(right, int32(0), matrix.rhs, (row, position), width)
                    with unrolled(width) as u:
                        T.buffer_store(sums, sums[j] + left[u] * right[u], [j])

            _when(position < int32(k) if k % (y * width) else None, one)

    vectors = _in_vectors(matrix, k, lhs=True)
    _when(guard, lambda: _either(vectors, lanes(block.problem), accumulate))
    with unrolled(columns) as j:
        distance = 1
        while distance < y:
            other = device.shuffle_xor(sums[j], distance, block.dtype)
            T.buffer_store(sums, sums[j] + other, [j])
            distance *= 2

    def inside(_: Any, j: Any) -> Any:
        mine = tirx.And(tirx.EQ(lane, int32(0)), column(j) < int32(n))
        return mine if guard is None else tirx.And(mine, guard)

    matrix.finish_all((1, columns), lambda i: int32(0), column, inside, sums)


def _along_n(
    block: Block, matrix: Matrix, guard: Any, part: Any, local: Any, config: VectorConfig
) -> None:
    _, n, k = block.problem.extents()
    x_count, y_count, columns = config.num_threads_x, config.num_threads_y, config.columns
    y = bind("y", tirx.truncdiv(local, int32(x_count)))
    x = bind("x", local - y * int32(x_count))
    start = bind("start", block.tile * int32(config.width))
    memory = shared("sums_shared", config.matrices * y_count * config.width, block.dtype)
    base = bind("base", part * int32(y_count * config.width))
    sums = registers("sums", columns, block.dtype)
    with unrolled(columns) as j:
        T.buffer_store(sums, tirx.FloatImm(block.dtype, 0.0), [j])

    def accumulate(width: int) -> None:
        right = registers("right", columns, block.dtype)
        steps = -(-k // y_count)
        unroll = {"pragma_unroll": config.unroll}
        with T.serial(int32(0), int32(steps), annotations=unroll) as step:
            position = bind("position", step * int32(y_count) + y)

            def one() -> None:
                left = bind("left", matrix.lhs.load(int32(0), position))
                if width > 1:
                    # Columns beyond the last are the last ones again, and are not written.
                    at = T.min(start + x * int32(width), int32(n - width))
                    _read(right, int32(0), matrix.rhs, (position, at), width)
                else:
                    with unrolled(columns) as j:
                        at = T.min(start + x + j * int32(x_count), int32(n - 1))
                        _read(right, j, matrix.rhs, (position, at), 1)
                with unrolled(columns) as j:
                    T.buffer_store(sums, sums[j] + left * right[j], [j])

            _when(position < int32(k) if k % y_count else None, one)
        row = base + y * int32(config.width)
        with unrolled(columns) as j:
            place = x * int32(width) + j if width > 1 else x + j * int32(x_count)
            T.buffer_store(memory, sums[j], [row + place])

    vectors = _in_vectors(matrix, n, lhs=False)
    _when(guard, lambda: _either(vectors, lanes(block.problem), accumulate))
    sync()
    threads = x_count * y_count
    total = registers("total", 1, block.dtype)
    for number in range(-(-config.width // threads)):
        place = bind("place", local + int32(number * threads))
        column = bind("column", start + place)
        conditions = tirx.And(place < int32(config.width), column < int32(n))

        def write(place: Any = place, column: Any = column) -> None:
            T.buffer_store(total, memory[base + place], [int32(0)])
            with T.serial(int32(1), int32(y_count)) as other:
                value = memory[base + other * int32(config.width) + place]
                T.buffer_store(total, total[int32(0)] + value, [int32(0)])
            matrix.finish_all(
                (1, 1), lambda i: int32(0), lambda j: column, lambda i, j: None, total
            )

        _when(conditions if guard is None else tirx.And(conditions, guard), write)
