"""What a run of ``tune`` found, as figures: a row for each problem of a target.

A candidate's time is that of a pass over all matrices of its workload on one thread, called without
TensorFlow. Times against stock are those of an op inside a graph. The two are never compared, only
ratios of times that were measured in turns.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tf_tvm_ops.kernels.manifest import Duel, KernelEntry, Manifest, Timing
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.schedules import AnyChoice
from tf_tvm_ops.kernels.tuning.ceilings import Ceilings, intensity
from tf_tvm_ops.kernels.tuning.measurer import Outcome
from tf_tvm_ops.kernels.tuning.record import OK, STATUSES
from tf_tvm_ops.kernels.tuning.search import State
from tf_tvm_ops.kernels.tuning.search.guided import Correction
from tf_tvm_ops.kernels.tuning.space import Candidate
from tf_tvm_ops.kernels.tuning.tuner import Found
from tf_tvm_ops.tools.decisions import brief

STOCK = ("onednn", "eigen")
"""Names of :class:`~tf_tvm_ops.kernels.manifest.Timing`'s duels."""


@dataclass(frozen=True)
class Row:
    """A problem.

    Attributes
    ----------
    state
        Its space, and what was measured of it.
    kernel
        That of the pack; None if the pack has none.
    ceilings
        Of the target, on this machine; None if they are not known.
    """

    state: State
    kernel: KernelEntry | None
    ceilings: Ceilings | None

    @property
    def problem(self) -> Problem:
        """What is computed."""
        return self.state.workload.problem

    @property
    def matrices(self) -> int:
        """How many in one pass."""
        return self.state.workload.matrices

    @property
    def multiply_adds(self) -> int:
        """Of one pass."""
        return self.matrices * math.prod(self.problem.extents())

    @property
    def name(self) -> str:
        """Type, extents, layouts and number of matrices, briefly."""
        return f"{brief(self.problem)} ·{self.matrices}"

    @cached_property
    def best(self) -> Outcome | None:
        """That of the fastest candidate; None if none was timed."""
        choice = self.state.best
        return None if choice is None else self.state.outcomes[choice]

    @property
    def first(self) -> AnyChoice[Any] | None:
        """What the cost model alone would have taken."""
        return self.state.space[0].choice if self.state.space else None

    @property
    def first_outcome(self) -> Outcome | None:
        """What became of it; None if it was not measured."""
        return self.state.outcomes.get(self.first) if self.first is not None else None

    @property
    def gain(self) -> float | None:
        """How many times faster the best is than the cost model's choice, if that was timed."""
        first = self.first_outcome
        if first is None or not first.ok or self.best is None:
            return None
        return first.median_us / self.best.median_us

    @cached_property
    def ratios(self) -> list[float]:
        """Times of all timed candidates, relative to the best, the fastest first."""
        times = sorted(o.median_us for o in self.state.outcomes.values() if o.ok)
        return [us / times[0] for us in times]

    @property
    def failures(self) -> list[tuple[AnyChoice[Any], Outcome]]:
        """Candidates that were not timed."""
        return [(choice, o) for choice, o in self.state.outcomes.items() if not o.ok]

    @property
    def intensity(self) -> float:
        """Operations for each byte, both as the definition needs them."""
        return intensity(self.problem)

    @property
    def gflops(self) -> float | None:
        """Of the best candidate."""
        return None if self.best is None else 2e-3 * self.multiply_adds / self.best.median_us

    @property
    def share(self) -> float | None:
        """Of the ceiling of its arithmetic and of where its operands are."""
        ceiling = self.ceilings.of(self.state.workload) if self.ceilings else None
        return self.gflops / ceiling if self.gflops and ceiling else None

    @cached_property
    def timing(self) -> Timing | None:
        """Of the bare product against stock, in the setting that is most like the workload's."""
        bare = [t for t in self.timings if t.epilogue == "none"]

        def unlike(timing: Timing) -> tuple[bool, float]:
            distance = abs(math.log(timing.matrices / self.matrices))
            return timing.cache != self.state.workload.cache, distance

        return min(bare, key=unlike, default=None)

    @property
    def timings(self) -> Sequence[Timing]:
        """All that was measured against stock."""
        return self.kernel.timings if self.kernel is not None else ()

    def stock(self, name: str) -> Duel | None:
        """Against one of :data:`STOCK`, in the setting of :attr:`timing`."""
        return None if self.timing is None else getattr(self.timing, name)


@dataclass(frozen=True)
class Lesson:
    """What measuring taught of a rule's cost model.

    Attributes
    ----------
    rule
        Its name.
    timed
        Candidates that the lesson is from.
    least, greatest
        Bounds of what the correction multiplies expected costs by, relative to the mean of a
        problem's candidates.
    error_before, error_after
        Standard deviation of the logarithm of measured over expected time, within a problem,
        without the correction and with it.
    """

    rule: str
    timed: int
    least: float
    greatest: float
    error_before: float
    error_after: float


@dataclass(frozen=True)
class Results:
    """All problems of one target.

    Attributes
    ----------
    target
        Its name.
    rows
        By multiply-adds.
    ceilings
        On this machine, if they could be measured.
    """

    target: str
    rows: tuple[Row, ...]
    ceilings: Ceilings | None

    @classmethod
    def of(
        cls, target: str, found: Sequence[Found], pack: Manifest | None, ceilings: Ceilings | None
    ) -> Results:
        """Bring together what was found and what the pack's manifest says of it."""
        kernels = {
            kernel.problem: kernel
            for image in (pack.images if pack is not None else ())
            if image.target == target
            for kernel in image.kernels
        }
        rows = (Row(f.state, kernels.get(f.state.workload.problem), ceilings) for f in found)
        return cls(
            target,
            tuple(sorted(rows, key=lambda row: (row.multiply_adds, str(row.problem)))),
            ceilings,
        )

    @property
    def measured(self) -> int:
        """Candidates."""
        return sum(len(row.state.outcomes) for row in self.rows)

    @property
    def gains(self) -> list[float]:
        """Over the cost model's choices, the smallest first."""
        return sorted(row.gain for row in self.rows if row.gain is not None)

    @property
    def statuses(self) -> dict[str, int]:
        """Number of candidates that failed, by status; those with none are left out."""
        counts = Counter(outcome.status for row in self.rows for _, outcome in row.failures)
        return {status: counts[status] for status in STATUSES if status != OK and counts[status]}

    def messages(self, status: str, most: int) -> list[str]:
        """The first different ones of candidates that failed so, and whose they are."""
        found: dict[str, str] = {}
        for row in self.rows:
            for choice, outcome in row.failures:
                if outcome.status == status:
                    whose = f"{row.name}, {config_text(choice.to_json())}"
                    found.setdefault(outcome.message, f"{whose}: {outcome.message}")
        return list(found.values())[:most]

    @cached_property
    def lessons(self) -> list[Lesson]:
        """Of each rule with candidates to compare."""
        states = [row.state for row in self.rows]
        correction = Correction(states)
        factors: dict[str, list[float]] = {}
        errors: dict[str, list[tuple[float, float]]] = {}
        for state in states:
            timed = [c for c in state.space if _timed(state, c)]
            if len(timed) < 2:
                continue
            before = [math.log(state.outcomes[c.choice].median_us / c.cost) for c in timed]
            learned = [math.log(correction.factor(c)) for c in timed]
            after = [b - part for b, part in zip(before, learned)]
            # Only what sets candidates of one problem apart is learned.
            means = [statistics.fmean(values) for values in (before, after, learned)]
            for candidate, b, a, part in zip(timed, before, after, learned):
                rule = candidate.choice.rule.name
                factors.setdefault(rule, []).append(math.exp(part - means[2]))
                errors.setdefault(rule, []).append((b - means[0], a - means[1]))
        return [
            Lesson(
                rule,
                len(found),
                min(found),
                max(found),
                *(math.sqrt(statistics.fmean(e[i] ** 2 for e in errors[rule])) for i in (0, 1)),
            )
            for rule, found in factors.items()
        ]


@dataclass(frozen=True)
class Setting:
    """How kernels did against one stock in one setting.

    Attributes
    ----------
    epilogue, cache, threads
        The setting.
    stock
        One of :data:`STOCK`.
    speedups
        How many times faster each kernel was, for each number of matrices.
    won
        How many of them were faster by more than the noise.
    lost
        Where stock was.
    """

    epilogue: str
    cache: str
    threads: int
    stock: str
    speedups: tuple[float, ...]
    won: int
    lost: int


def settings(rows: Sequence[Row]) -> list[Setting]:
    """Each setting that was measured."""
    duels: dict[tuple[str, str, int, str], list[Duel]] = {}
    for row in rows:
        for t in row.timings:
            for name in STOCK:
                if (duel := getattr(t, name)) is not None:
                    key = (t.epilogue, t.cache, t.threads, name)
                    duels.setdefault(key, []).append(duel)
    return [
        Setting(
            *key,
            tuple(duel.stock_us / duel.kernel_us for duel in found if duel.kernel_us > 0),
            sum(duel.won for duel in found),
            sum(duel.lost for duel in found),
        )
        for key, found in duels.items()
    ]


def config_text(config: Mapping[str, object]) -> str:
    """A rule and its knobs in one line."""
    knobs = " ".join(f"{name}={value}" for name, value in config.items() if name != "rule")
    return f"{str(config.get('rule', '')).removeprefix('cpu_')} {knobs}".strip()


def _timed(state: State, candidate: Candidate) -> bool:
    outcome = state.outcomes.get(candidate.choice)
    return outcome is not None and outcome.ok
