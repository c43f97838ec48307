"""MetaSchedule's evolutionary search, over the knobs of our rules.

Rules emit TensorIR by themselves, so there is nothing for MetaSchedule to schedule. What it evolves
are traces on a stand-in: each rule is a design space, each of its knobs a categorical decision that
is annotated on the stand-in's only block. Sampling, selection by a cost model, mutation and the
mixture with what was measured best are MetaSchedule's.
"""

from __future__ import annotations

import json
import logging
import random
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import te
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from ...schedules import Choice
from ..measurer import Outcome
from ..space import Candidate
from ..workload import Workload
from .guided import Correction
from .strategy import State, Strategy

_POPULATION = 64
_GENERATIONS = 3
_RANDOM_SHARE = 0.2
"""Of proposals: candidates drawn at random, so that the model is seen wrong where it is."""

_ATTEMPTS = 8
"""Batches in a row that hold nothing untried, before a search ends."""

_BLOCK = "stand_in"
_RULE = "rule"


class Evolutionary(Strategy):
    """Ends when the evolution comes to nothing new.

    Parameters
    ----------
    seed
        The same proposals follow from the same seed and the same outcomes.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._evolutions: dict[Workload, _Evolution] = {}

    def propose(self, states: Sequence[State], most: int) -> list[list[Choice]]:
        """See :class:`Strategy`."""
        correction = Correction(states)
        proposed = []
        for state in states:
            evolution = self._evolutions.get(state.workload)
            if evolution is None:
                evolution = _Evolution(state, self._seed, most)
                self._evolutions[state.workload] = evolution
            proposed.append(evolution.propose(state, correction, most))
        return proposed


class _Genes:
    """The space of a workload as rules and the values of their knobs."""

    def __init__(self, space: Sequence[Candidate]) -> None:
        self.rules = list(dict.fromkeys(c.choice.rule.name for c in space))
        self.values: list[dict[str, list[Any]]] = [{} for _ in self.rules]
        for candidate in space:
            values = self.values[self.rules.index(candidate.choice.rule.name)]
            for name, knob in candidate.choice.config.to_json().items():
                known = values.setdefault(name, [])
                if knob not in known:
                    known.append(knob)
        for values in self.values:
            for known in values.values():
                known.sort()
        self.candidates = {self.encode(c.choice): c for c in space}

    def encode(self, choice: Choice) -> tuple[int, ...]:
        """The rule's index, then the index of each knob's value."""
        rule = self.rules.index(choice.rule.name)
        knobs = choice.config.to_json()
        return (rule, *(known.index(knobs[name]) for name, known in self.values[rule].items()))

    def decode(self, schedule: Any) -> Candidate | None:
        """What the annotations of a schedule stand for; None if the space has no such candidate."""
        noted = schedule.get(schedule.get_sblock(_BLOCK)).annotations
        rule = int(noted[_RULE])
        return self.candidates.get((rule, *(int(noted[name]) for name in self.values[rule])))


class _Evolution:
    """MetaSchedule's search for one workload."""

    def __init__(self, state: State, seed: int, most: int) -> None:
        _let_modules_be_copied()
        self._genes = _Genes(state.space)
        # The same for a workload whatever others there are.
        name = json.dumps([seed, state.workload.to_json()], sort_keys=True)
        state_of_random = zlib.crc32(name.encode()) % (2**31 - 2) + 1
        self._scores = _Scores(self._genes)
        self._target = tvm.target.Target({"kind": "llvm", "num-cores": 1})
        self._context = _Context(
            self._target,
            ms.space_generator.ScheduleFn(
                self._design_spaces,
                sch_rules=[],
                postprocs=[_InSpace(self._genes)],
                mutator_probs={_ChangeKnob(random.Random(state_of_random)): 1.0},
            ),
            ms.search_strategy.EvolutionarySearch(
                population_size=_POPULATION,
                init_min_unmeasured=1,
                genetic_num_iters=_GENERATIONS,
                eps_greedy=_RANDOM_SHARE,
            ),
            state_of_random,
        )
        self._spaces = self._context.generate_design_space()
        self._database = ms.database.MemoryDatabase()
        self._workload = self._database.commit_workload(self._context.mod)
        self._context.pre_tuning(2**30, most, self._spaces, self._database, self._scores)
        self._told: dict[Choice, Outcome] = {}
        self._batch: list[tuple[Any, Choice]] = []
        self._waiting: deque[Choice] = deque()

    def propose(self, state: State, correction: Correction, most: int) -> list[Choice]:
        """See :class:`Strategy`."""
        self._tell(state.outcomes)
        expected = correction.expected(state, state.space)
        # It is the measured time that counts for what was measured, and nothing for what failed.
        self._scores.expected = {c.choice: us for c, us in zip(state.space, expected)} | {
            choice: outcome.median_us if outcome.ok else float("inf")
            for choice, outcome in state.outcomes.items()
        }
        proposed: dict[Choice, None] = {}
        for _ in range(_ATTEMPTS):
            while self._waiting and len(proposed) < most:
                choice = self._waiting.popleft()
                if choice not in state.outcomes:
                    proposed[choice] = None
            if len(proposed) == most or len(proposed) + len(state.outcomes) == len(state.space):
                break
            batch = self._context.generate_measure_candidates()
            if batch is None:
                break
            for found in batch:
                candidate = self._genes.decode(found.sch)
                assert candidate is not None  # by _InSpace
                self._batch.append((found, candidate.choice))
                self._waiting.append(candidate.choice)
        return list(proposed)

    def _tell(self, outcomes: Mapping[Choice, Outcome]) -> None:
        """What was measured, by earlier runs too."""
        for choice, outcome in outcomes.items():
            if outcome.ok and self._told.get(choice) != outcome:
                seconds = [1e-6 * outcome.median_us]
                self._database.commit_tuning_record(
                    ms.database.TuningRecord(
                        self._trace(choice), self._workload, seconds, self._target, []
                    )
                )
                self._told[choice] = outcome
        measured = [
            (found, outcomes[choice]) for found, choice in self._batch if choice in outcomes
        ]
        if measured:
            results = [
                ms.runner.RunnerResult([1e-6 * outcome.median_us], None)
                if outcome.ok
                else ms.runner.RunnerResult(None, outcome.message or outcome.status)
                for _, outcome in measured
            ]
            self._context.notify_runner_results([found for found, _ in measured], results)
        self._batch = [(found, choice) for found, choice in self._batch if choice not in outcomes]

    def _design_spaces(self, schedule: Any) -> list[Any]:
        spaces = []
        for rule, values in enumerate(self._genes.values):
            space = schedule.copy()
            block = space.get_sblock(_BLOCK)
            space.annotate(block, _RULE, rule)
            for name, known in values.items():
                equal = [1.0 / len(known)] * len(known)
                decision = space.sample_categorical(list(range(len(known))), equal)
                space.annotate(block, name, decision)
            spaces.append(space)
        return spaces

    def _trace(self, choice: Choice) -> Any:
        rule, *knobs = self._genes.encode(choice)
        trace = self._spaces[rule].trace
        for instruction, knob in zip(_decisions(trace), knobs):
            trace = trace.with_decision(instruction, knob, remove_postproc=True)
        return trace


class _Context(ms.TuneContext):  # type: ignore[misc]
    """One that does not import TVM's tensor intrinsics, which takes half a minute."""

    def __init__(self, target: Any, generator: Any, strategy: Any, state_of_random: int) -> None:
        threads = 1  # several would take turns in no fixed order
        self.__init_handle_by_constructor__(
            ms._ffi_api.TuneContext,
            tvm.IRModule({"main": _stand_in()}),
            *(target, generator, strategy, "tune", threads, state_of_random),
            ms.logging.get_logging_func(logging.getLogger(__name__)),
        )
        ms._ffi_api.TuneContextInitialize(self)


@derived_object
class _InSpace(ms.postproc.PyPostproc):  # type: ignore[misc]
    """Rejects combinations of knobs that are no candidates."""

    def __init__(self, genes: _Genes) -> None:
        super().__init__()
        self._genes = genes

    def _initialize_with_tune_context(self, context: Any) -> None:
        pass

    def apply(self, sch: Any) -> bool:
        return self._genes.decode(sch) is not None

    def clone(self) -> Any:
        return _InSpace(self._genes)


@derived_object
class _ChangeKnob(ms.mutator.PyMutator):  # type: ignore[misc]
    """Gives one knob another value."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng

    def _initialize_with_tune_context(self, context: Any) -> None:
        pass

    def apply(self, trace: Any, _: Any) -> Any:
        knobs = [i for i in _decisions(trace) if len(i.attrs[0]) > 1]
        if not knobs:
            return None
        instruction = self._rng.choice(knobs)
        # Another one than it has: by a step from it, around the end.
        count = len(instruction.attrs[0])
        step = self._rng.randrange(1, count)
        value = (int(trace.decisions[instruction]) + step) % count
        return trace.with_decision(instruction, value, remove_postproc=True)

    def clone(self) -> Any:
        return _ChangeKnob(self._rng)


@derived_object
class _Scores(ms.cost_model.PyCostModel):  # type: ignore[misc]
    """Our own expectations, which the strategy renews: see :class:`~.guided.Correction`."""

    def __init__(self, genes: _Genes) -> None:
        super().__init__()
        self._genes = genes
        self.expected: dict[Choice, float] = {}

    def load(self, path: str) -> None:
        pass

    def save(self, path: str) -> None:
        pass

    def update(self, context: Any, candidates: Any, results: Any) -> None:
        pass

    def predict(self, context: Any, candidates: Sequence[Any]) -> Any:
        """Higher is better."""
        found = (self._genes.decode(candidate.sch) for candidate in candidates)
        return np.array([1.0 / self.expected[c.choice] if c else 0.0 for c in found])


def _decisions(trace: Any) -> list[Any]:
    """The instructions of a trace that sample, in their order."""
    return [
        instruction for instruction in trace.insts if instruction.kind.name.startswith("Sample")
    ]


@cache
def _stand_in() -> Any:
    """A function with one block, which nothing is done with."""
    source = te.placeholder((1,), name="source")
    result = te.compute((1,), lambda i: source[i], name=_BLOCK)
    return te.create_prim_func([source, result])


@cache
def _let_modules_be_copied() -> None:
    """Have TVM copy modules as TVMScript.

    MetaSchedule copies the module that it works on by tvm-ffi's graphs in JSON, which hold
    primitive types. These have a hash function of their own in TVM 0.27, of a signature that
    tvm-ffi 0.1.15 has changed: the process ends in a segmentation fault. A module that is a text
    in the graph has no types there.
    """
    registry = tvm_ffi.core
    info = registry._lookup_or_register_type_info_from_type_key("ir.IRModule")
    if registry._lookup_type_attr(info.type_index, "__data_to_json__") is None:
        for name, function in (
            ("__data_to_json__", lambda module: module.script()),
            ("__data_from_json__", tvm.script.from_source),
        ):
            registry._register_type_attr(info.type_index, name, tvm_ffi.convert(function))
