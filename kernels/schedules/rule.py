"""What a schedule rule is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from ..compute import Matrix
from ..problem import Problem
from ..targets import Target


@dataclass(frozen=True)
class Config:
    """How to compute a problem: the knobs of one rule, validated when made.

    Subclasses are frozen dataclasses whose fields are ints or strings.
    """

    def to_json(self) -> dict[str, Any]:
        """The knobs by name."""
        # Not asdict: it copies deeply, which takes longer than a cost model.
        return dict(vars(self))

    def stem(self) -> str:
        """The part of a symbol name that stands for the config."""
        return "_".join(
            f"{''.join(word[0] for word in name.split('_'))}{value}"
            for name, value in self.to_json().items()
        )


C = TypeVar("C", bound=Config)


class Rule(ABC, Generic[C]):
    """One way to compute a family of problems."""

    name: ClassVar[str]
    config_type: type[C]

    @abstractmethod
    def refusal(self, problem: Problem, target: Target) -> str | None:
        """Why the rule does not apply to ``problem``, in a few words, or None if it does."""

    @abstractmethod
    def space(self, problem: Problem, target: Target) -> Iterator[C]:
        """All configs worth trying, in a fixed order."""

    @abstractmethod
    def cost(self, problem: Problem, target: Target, config: C) -> float:
        """Expected cycles for one matrix: see :mod:`.cost`."""

    @abstractmethod
    def emit(self, matrix: Matrix, target: Target, config: C) -> None:
        """Emit the statements that compute ``matrix``."""

    def around(self, problem: Problem, target: Target, config: C) -> AbstractContextManager[None]:
        """Entered before the loop over the matrices and left behind it, to emit statements."""
        return nullcontext()

    def workspace_bytes(self, problem: Problem, target: Target, config: C) -> int:
        """Scratch memory that the kernel needs in each thread."""
        return 0

    def propose(self, problem: Problem, target: Target) -> C:
        """The config with the least expected cost; the first of equals.

        Raises
        ------
        ValueError
            If the rule does not apply.
        """
        reason = self.refusal(problem, target)
        if reason is not None:
            raise ValueError(f"{self.name} does not apply to {problem}: {reason}")
        return min(self.space(problem, target), key=lambda c: self.cost(problem, target, c))


class Named(Protocol):
    """Whatever has the name of a rule."""

    name: ClassVar[str]


R = TypeVar("R", bound=Named)


@dataclass(frozen=True)
class AnyChoice(Generic[R]):
    """A rule and its config for a problem: all that a kernel's name and code depend on."""

    rule: R
    config: Config

    def to_json(self) -> Mapping[str, Any]:
        """As a manifest has it."""
        return {"rule": self.rule.name, **self.config.to_json()}

    def symbol(self, problem: Problem) -> str:
        """The kernel's symbol name."""
        return f"{problem.stem()}_{self.rule.name.removeprefix('cpu_')}_{self.config.stem()}"


Choice = AnyChoice[Rule[Any]]
"""For a CPU."""
