"""What it is to measure candidates: the interface of every way of doing it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .record import OK
from .workload import Workload


class MeasureError(RuntimeError):
    """Nothing can be measured any more; the message says why and what to do."""


@dataclass(frozen=True)
class Trial:
    """A compiled candidate.

    Attributes
    ----------
    symbol
        Name of its function in the image.
    workspace_bytes
        Scratch memory that it needs.
    """

    symbol: str
    workspace_bytes: int = 0


@dataclass(frozen=True)
class Group:
    """Candidates for one workload, which are timed in turns.

    Attributes
    ----------
    image
        File that holds their functions.
    workload
        What they compute.
    trials
        The candidates.
    samples
        How often each is timed.
    """

    image: str
    workload: Workload
    trials: tuple[Trial, ...]
    samples: int = 9

    def to_json(self) -> dict[str, Any]:
        """For another process or machine."""
        return {
            "image": self.image,
            "workload": self.workload.to_json(),
            "trials": [[t.symbol, t.workspace_bytes] for t in self.trials],
            "samples": self.samples,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Group:
        """The inverse of :meth:`to_json`."""
        return cls(
            fields["image"],
            Workload.from_json(fields["workload"]),
            tuple(Trial(*trial) for trial in fields["trials"]),
            fields["samples"],
        )


@dataclass(frozen=True)
class Outcome:
    """What became of a candidate: as in :class:`~.record.Record`."""

    status: str
    median_us: float = 0.0
    spread_us: float = 0.0
    message: str = ""

    @property
    def ok(self) -> bool:
        """Whether it was timed."""
        return self.status == OK


class Measurer(Protocol):
    """A way to check and time candidates.

    Attributes
    ----------
    machine
        The processor that candidates run on, for records.
    """

    machine: str

    def measure(self, groups: Sequence[Group]) -> Iterator[tuple[Group, list[Outcome]]]:
        """Check each candidate against the oracle, then time the right ones of a group in turns.

        Groups may come back in any order, each as soon as it is done. A candidate that fails,
        crashes or hangs has that for an outcome, and the others go on.

        Raises
        ------
        MeasureError
            If no candidate can be measured any more.
        """
        ...
