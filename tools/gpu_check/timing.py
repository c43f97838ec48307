"""Times the ways to compute a product in turns, each after its answer was found right."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from tf_tvm_ops.kernels.runtime.turns import time_in_turns
from tf_tvm_ops.tools.gpu_check.buffers import Buffers
from tf_tvm_ops.tools.gpu_check.cases import Case
from tf_tvm_ops.tools.gpu_check.images import Choice
from tf_tvm_ops.tools.gpu_check.session import Session, guarded
from tf_tvm_ops.tools.gpu_check.ways import (
    BARE,
    COMPILED,
    CUBLAS,
    CUBLAS_PASSES,
    OURS,
    OURS_FUSED,
    TRITON,
    Graph,
    Ours,
    Way,
)

HOT, COLD = "hot", "cold"
"""Whether operands are in the GPU's second cache when a launch begins."""


@dataclass(frozen=True)
class Options:
    """How carefully to time.

    Attributes
    ----------
    rounds
        Each way is timed so often; the median counts.
    launches
        At most that many launches in a graph of the hot setting.
    round_us
        A graph should take about that long.
    """

    rounds: int = 11
    launches: int = 100
    round_us: float = 2000.0


@dataclass(frozen=True)
class Measurement:
    """One way at one setting.

    Attributes
    ----------
    way, cache
        Which.
    median_us, low_us, high_us
        Microseconds of one launch: median and quartiles of the rounds.
    launches
        In a graph.
    sets
        Copies of the operands that launches rotate through.
    bytes
        Of all of them.
    """

    way: str
    cache: str
    median_us: float
    low_us: float
    high_us: float
    launches: int
    sets: int
    bytes: int


def time_case(
    session: Session,
    case: Case,
    choice: Choice,
    names: Sequence[str],
    options: Options,
    found: dict[str, Any],
) -> None:
    """Time a product in both settings.

    Parameters
    ----------
    session
        Of the worker.
    case
        The product.
    choice
        Our kernel for it.
    names
        Of the ways to compute it.
    options
        How.
    found
        ``measurements``, a list to add to, and ``faults``: what is wrong with ways that are
        missing there, by their names.

    Raises
    ------
    ContextLostError
        If the GPU's context is lost; what was found until then is in ``found``.
    """
    faults: dict[str, str] = found["faults"]
    for cache in (HOT, COLD):
        footprint = 2 * session.device.cache_bytes if cache == COLD else 0
        with Buffers(session.context, case, footprint) as buffers:
            left = [name for name in names if name not in faults]
            setting = _Setting(session, buffers, choice, cache, options, faults)
            found["measurements"] += [asdict(m) for m in setting.measure(left)]


class _Setting:
    """One case at one setting of the cache."""

    def __init__(
        self,
        session: Session,
        buffers: Buffers,
        choice: Choice,
        cache: str,
        options: Options,
        faults: dict[str, str],
    ) -> None:
        self._session = session
        self._buffers = buffers
        self._choice = choice
        self._cache = cache
        self._options = options
        self._faults = faults

    def measure(self, names: Sequence[str]) -> list[Measurement]:
        ready: dict[str, Way] = {}
        for name in names:
            way = self._guarded(name, partial(self._checked, name))
            if way is not None:
                ready[name] = way
        indices = self._indices(next(iter(ready.values()))) if ready else []
        graphs: dict[str, Graph] = {}
        try:
            for name, way in ready.items():
                graph = self._guarded(name, partial(self._captured, name, way, indices))
                if graph is not None:
                    graphs[name] = graph
            runs = [graph.launch for graph in graphs.values()]
            context, stream = self._session.context, self._session.stream
            times = time_in_turns(context, stream, runs, self._options.rounds)
        finally:
            for graph in graphs.values():
                # Fails in a context that is lost, and then is not what matters.
                with suppress(RuntimeError):
                    graph.close()
        return [self._measurement(name, t, len(indices)) for name, t in zip(graphs, times)]

    def _guarded(self, name: str, attempt: Callable[[], Any]) -> Any:
        return guarded(self._session, attempt, partial(self._faults.__setitem__, name))

    def _checked(self, name: str) -> Way:
        """The way, which has computed the last copy right."""
        way = make(self._session, self._buffers, self._choice, name)
        last = self._buffers.sets - 1
        self._buffers.poison()
        way.enqueue(last)
        way.settle(last)
        self._expect(name, last)
        return way

    def _indices(self, way: Way) -> list[int]:
        """Which copy each launch of a graph computes."""
        session, options = self._session, self._options
        (times,) = time_in_turns(
            session.context, session.stream, [lambda: way.enqueue(0)], rounds=3
        )
        wanted = options.round_us / max(statistics.median(times), 1e-3)
        launches = max(4, min(options.launches, int(wanted)))
        # Every copy, so that each has left the cache when its turn comes again.
        sets = self._buffers.sets
        return [index % sets for index in range(max(launches, sets))]

    def _captured(self, name: str, way: Way, indices: Sequence[int]) -> Graph:
        """The graph, which has computed the first and the last copy right."""
        graph = way.capture(indices)
        try:
            ends = sorted({0, self._buffers.sets - 1})
            for index in ends:
                # Whatever is there now: from here on results are NaN until they are computed.
                way.settle(index)
            self._buffers.poison()
            graph.launch()
            for index in ends:
                way.settle(index)
                self._expect(name, index)
        except BaseException:
            graph.close()
            raise
        return graph

    def _expect(self, name: str, index: int) -> None:
        self._session.stream.synchronize()
        fault = self._buffers.fault(index, fused=name not in BARE)
        if fault:
            raise WrongResultError(fault)

    def _measurement(self, name: str, times: Sequence[float], launches: int) -> Measurement:
        one = [t / launches for t in times]
        low, median, high = statistics.quantiles(one, n=4) if len(one) > 1 else one * 3
        buffers = self._buffers
        return Measurement(
            name, self._cache, median, low, high, launches, buffers.sets, buffers.bytes
        )


class WrongResultError(ValueError):
    """A way to compute a product gives a wrong answer, and so is not timed."""


def make(session: Session, buffers: Buffers, choice: Choice, name: str) -> Way:
    """The way of that name.

    Raises
    ------
    ImportError
        If what it needs is not installed.
    """
    if name in (OURS, OURS_FUSED):
        return Ours(session, buffers, choice, fused=name == OURS_FUSED)
    if name == TRITON:
        from tf_tvm_ops.tools.gpu_check.triton_way import Triton

        return Triton(session, buffers)
    from tf_tvm_ops.tools.gpu_check import torch_ways

    torch_ways.prepare()
    if name == COMPILED:
        return torch_ways.Compiled(session, buffers)
    assert name in (CUBLAS, CUBLAS_PASSES), name
    return torch_ways.Cublas(session, buffers, fused=name == CUBLAS_PASSES)
