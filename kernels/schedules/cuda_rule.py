"""What a schedule rule for GPUs is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Generic, TypeVar

from ..cuda import cost
from ..cuda.function import Block, Grid
from ..cuda.targets import MAX_REGISTERS, MAX_SHARED_BYTES, CudaTarget
from ..cuda.tile_shape import Tile
from ..cuda.work import deep_reads, of_tile
from ..problem import Problem
from ..vectors import Index
from .rule import AnyChoice, Config

C = TypeVar("C", bound=Config)


class CudaRule(ABC, Generic[C]):
    """One way to compute a family of problems on a GPU.

    Everything in :meth:`space` launches: shared memory, threads and grid are within the limits of
    the target. Registers are the compiler's business; a kernel that spills is refused after it.
    """

    name: ClassVar[str]
    config_type: type[C]

    @abstractmethod
    def refusal(self, problem: Problem, target: CudaTarget) -> str | None:
        """Why the rule does not apply to ``problem``, in a few words, or None if it does."""

    @abstractmethod
    def space(self, problem: Problem, target: CudaTarget) -> Iterator[C]:
        """All configs worth trying, in a fixed order."""

    @abstractmethod
    def cost(self, problem: Problem, target: CudaTarget, config: C) -> float:
        """Expected nanoseconds for a batch of matrices: see :mod:`..cuda.cost`."""

    @abstractmethod
    def grid(self, m: Index, n: Index, k: Index, config: C) -> Grid:
        """Blocks and threads."""

    @abstractmethod
    def emit(self, block: Block, config: C) -> None:
        """Emit the statements of one block: the same for every target, whose needs are knobs."""

    def shared_bytes(self, problem: Problem, config: C) -> int:
        """Shared memory of a block."""
        return 0

    def fits(self, problem: Problem, config: C) -> bool:
        """Whether a block's shared memory is within the limit."""
        return self.shared_bytes(problem, config) <= MAX_SHARED_BYTES


def may_copy_async(problem: Problem, target: CudaTarget) -> int:
    """1 where elements can be copied to shared memory past the registers, else 0.

    16-bit elements cannot: they are widened on their way.
    """
    return int(target.copies_async and problem.dtype in ("float32", "float64"))


def tile_nanoseconds(problem: Problem, target: CudaTarget, shape: Tile) -> float:
    """Expected time of :func:`~tf_tvm_ops.kernels.cuda.tile.emit_tile`."""
    _, _, k = problem.extents()
    deep = deep_reads(problem, shape)
    sums = shape.tile_m * shape.tile_n
    chunks = -(-k // shape.tile_k)
    return cost.nanoseconds(
        problem,
        target,
        of_tile(problem, shape),
        shared_bytes=shape.shared_bytes(problem.lhs, problem.rhs, problem.dtype, chunks),
        registers=min(MAX_REGISTERS, 40 + sums + deep * (shape.tile_m + shape.tile_n)),
    )


CudaChoice = AnyChoice[CudaRule[Any]]
"""A rule and its config, for a GPU."""
