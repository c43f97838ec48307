"""Runs of the tuner that never took place: real spaces, made-up times."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from tf_tvm_ops.kernels.manifest import Duel, ImageEntry, KernelEntry, Manifest, Timing
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.targets import TARGETS
from tf_tvm_ops.kernels.tuning.ceilings import Ceilings, Level, intensity
from tf_tvm_ops.kernels.tuning.measurer import Outcome
from tf_tvm_ops.kernels.tuning.record import CRASHED, NOT_BUILT, OK, WRONG
from tf_tvm_ops.kernels.tuning.search import State
from tf_tvm_ops.kernels.tuning.space import space
from tf_tvm_ops.kernels.tuning.tuner import Found
from tf_tvm_ops.kernels.tuning.workload import Workload
from tf_tvm_ops.tools.bench.machine import Machine
from tf_tvm_ops.tools.tune import report
from tf_tvm_ops.tools.tune.results import Results

TARGET = "cpu:x86-64-v3"
CEILINGS = Ceilings(
    {"float32": 100.0, "float64": 50.0, "float16": 100.0, "bfloat16": 100.0},
    (
        Level("L1d", 32 << 10, 200.0),
        Level("L2", 1 << 20, 100.0),
        Level("L3", 32 << 20, 50.0),
        Level("memory", None, 10.0),
    ),
)


def state(problem: Problem, matrices: int, *outcomes: Outcome | None) -> State:
    """The first candidates of a space, in the order of what the cost model expects."""
    made = State(Workload(problem, matrices), space(problem, TARGETS[TARGET]))
    for candidate, outcome in zip(made.space, outcomes):
        if outcome is not None:
            made.outcomes[candidate.choice] = outcome
    return made


def ok(us: float, spread: float = 0.0) -> Outcome:
    return Outcome(OK, us, spread)


def problems(count: int, seed: int = 0) -> list[Problem]:
    """Different ones, up to 512 in each extent."""
    rng = random.Random(seed)
    found: dict[Problem, None] = {}
    while len(found) < count:
        m, n, k = (round(512 ** rng.random()) for _ in range(3))
        dtype = rng.choice(("float32", "float32", "float32", "float16", "float64"))
        found[Problem(m, n, k, "k", rng.choice("nk"), dtype).canonical()] = None
    return list(found)


def random_run(given: Sequence[Problem], trials: int = 16, seed: int = 0) -> list[Found]:
    """What a run over problems might have found: one candidate in forty fails."""
    rng = random.Random(seed)
    return [Found(_state(problem, trials, rng)) for problem in given]


def _state(problem: Problem, trials: int, rng: random.Random) -> State:
    workload = Workload(problem, rng.choice((1, 8, 64, 512)))
    state = State(workload, space(problem, TARGETS[TARGET]))
    ceiling = min(100.0, 100 * intensity(problem))
    m, n, k = problem.extents()
    least = 2e-3 * workload.matrices * m * n * k / (ceiling * rng.uniform(0.15, 0.9))
    for number, candidate in enumerate(state.space[:trials]):
        chance = rng.random()
        if number and chance < 0.025:
            failed = (WRONG, "row 3 differs") if chance < 0.01 else (CRASHED, "ended by SIGSEGV")
            state.outcomes[candidate.choice] = Outcome(failed[0], message=failed[1])
            continue
        us = least * (1 + rng.expovariate(2.5) ** 2 + 0.02 * number)
        state.outcomes[candidate.choice] = Outcome(OK, us, 0.03 * us)
    return state


def manifest(found: Sequence[Found], seed: int = 0) -> Manifest:
    """The manifest that the run might have published."""
    rng = random.Random(seed)
    kernels = []
    for state in (f.state for f in found):
        if state.best is None:
            continue
        us = state.outcomes[state.best].median_us + 2
        stock = [Duel(us, us * rng.lognormvariate(0.7, 0.7), 0.1 * us) for _ in range(2)]
        timings = [Timing(state.workload.matrices, 2, "hot", "none", *stock)]
        if not all(duel.won for duel in stock):
            cold = [Duel(2 * us, us * rng.lognormvariate(1, 0.5), 0.1 * us) for _ in range(2)]
            timings.append(Timing(state.workload.matrices, 2, "cold", "none", *cold))
        problem = state.workload.problem
        symbol = state.best.symbol(problem)
        kernels.append(
            KernelEntry(symbol, problem, state.best.to_json(), 0, timings=tuple(timings))
        )
    image = ImageEntry(TARGET, "cpu-x86-64-v3-0123456789abcdef.so", 1, "0" * 64, tuple(kernels))
    return Manifest(2, {"apache-tvm": "0.27"}, (image,))


SMALL, LARGE = Problem(4, 8, 16), Problem(64, 64, 64, "k", "k")
HOT = Timing(2, 2, "hot", "none", Duel(12.0, 18.0, 1.0), Duel(12.5, 10.0, 1.0))
COLD = Timing(2, 2, "cold", "none", Duel(30.0, 45.0, 2.0), Duel(31.0, 30.0, 2.0))


def found() -> list[Found]:
    """A small run, whose figures are known."""
    bad = Outcome(WRONG, message='<script>alert("1 & 2")</script>')
    return [
        Found(state(LARGE, 2, ok(20.0), ok(10.0, 0.5), bad, bad, Outcome(NOT_BUILT, message="no"))),
        Found(state(SMALL, 8, ok(0.5), ok(1.0))),
    ]


def pack(*timings: Timing, of: Problem = LARGE) -> Manifest:
    """What came of it; only one kernel was measured against stock."""
    made = manifest(found())
    (image,) = made.images
    kernels = (
        replace(kernel, timings=timings if kernel.problem == of else ()) for kernel in image.kernels
    )
    return replace(made, images=(replace(image, kernels=tuple(kernels)),))


HERE = Machine("Some CPU <9>", 2, TARGET, ("L1d 32 KiB",), "Linux", {"numpy": "2"}, 0.0)


def document(
    given: list[Found],
    made: Manifest | None = None,
    roofs: Ceilings | None = CEILINGS,
    **peer: float,
) -> str:
    """The page of a run on a machine that does not exist."""
    return report.document([Results.of(TARGET, given, made, roofs)], HERE, made, peer)
