"""A thread for each output: the baseline.

The kernel of the Alibaba report on batched products in machine translation ("Bringing TVM into
TensorFlow for Optimizing Neural Machine Translation on GPU", 2018) before its tuning: a block
covers ``num_threads_y`` rows and ``num_threads_x`` columns of one matrix, and each thread walks K
by itself. Neighbouring threads read neighbouring columns; what they share comes from the caches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from ..cuda import cost
from ..cuda.function import Block, Grid, as_int64, bind, int32, registers
from ..cuda.targets import MAX_THREADS, WARP, CudaTarget
from ..cuda.work import of_thread
from ..problem import Problem
from ..vectors import Index
from .cuda_rule import CudaRule
from .rule import Config


@dataclass(frozen=True)
class ThreadConfig(Config):
    """Knobs of the baseline.

    Attributes
    ----------
    num_threads_y, num_threads_x
        Rows and columns of a block.
    unroll
        Steps of K in one iteration.
    """

    num_threads_y: int
    num_threads_x: int
    unroll: int

    def __post_init__(self) -> None:
        for name, value in self.to_json().items():
            if value < 1 or value & (value - 1):
                raise ValueError(f"{name}={value}: expected a power of two")
        if not WARP <= self.num_threads_y * self.num_threads_x <= MAX_THREADS:
            raise ValueError(f"{self}: expected {WARP} to {MAX_THREADS} threads")


class CudaThread(CudaRule[ThreadConfig]):
    """See the module."""

    name = "cuda_thread"
    config_type = ThreadConfig

    def refusal(self, problem: Problem, target: CudaTarget) -> str | None:
        """Serves every problem with fixed extents."""
        return "extents not fixed" if problem.is_generic else None

    def space(self, problem: Problem, target: CudaTarget) -> Iterator[ThreadConfig]:
        """Blocks of one to eight warps, no larger than the product needs."""
        for rows, columns in (
            (1, 32),
            (1, 64),
            (2, 32),
            (4, 32),
            (8, 32),
            (4, 16),
            (8, 8),
            (16, 16),
        ):
            for unroll in (1, 4, 8):
                yield ThreadConfig(rows, columns, unroll)

    def cost(self, problem: Problem, target: CudaTarget, config: ThreadConfig) -> float:
        """That of a thread's loads."""
        work = of_thread(problem, **config.to_json())
        return cost.nanoseconds(problem, target, work)

    def grid(self, m: Index, n: Index, k: Index, config: ThreadConfig) -> Grid:
        """A block for each tile."""
        tiles = -(-int(m) // config.num_threads_y) * -(-int(n) // config.num_threads_x)
        return Grid(config.num_threads_y * config.num_threads_x, tiles)

    def emit(self, block: Block, config: ThreadConfig) -> None:
        """One output."""
        m, n, k = block.problem.extents()
        matrix = block.matrix()
        rows, columns = config.num_threads_y, config.num_threads_x
        across = -(-n // columns)
        y = tirx.truncdiv(block.thread, int32(columns))
        x = tirx.truncmod(block.thread, int32(columns))
        row = bind("row", tirx.truncdiv(block.tile, int32(across)) * int32(rows) + y)
        column = bind("column", tirx.truncmod(block.tile, int32(across)) * int32(columns) + x)
        with T.If(tirx.And(row < int32(m), column < int32(n))), T.Then():
            total = registers("sum", 1, block.dtype)
            T.buffer_store(total, tirx.FloatImm(block.dtype, 0.0), [int32(0)])

            def step(position: Index) -> None:
                left = matrix.lhs.load(*matrix.lhs_at(row, position))
                right = matrix.rhs.load(*matrix.rhs_at(position, column))
                T.buffer_store(total, total[int32(0)] + left * right, [int32(0)])

            with T.serial(int32(0), int32(k), annotations={"pragma_unroll": config.unroll}) as i:
                step(as_int64(i))
            matrix.finish_all((1, 1), lambda i: row, lambda j: column, lambda i, j: None, total)
