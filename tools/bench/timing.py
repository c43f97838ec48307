"""Timing an op inside a TensorFlow graph, free of what Python adds to a call."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tf_tvm_ops import rewrite
from tf_tvm_ops.tools.bench.cases import Array
from tf_tvm_ops.tools.bench.worker import LEAST_US

Builder = Callable[..., tf.Tensor]

_LENGTHS: list[int] = sorted({*(2**i for i in range(2, 13)), *(3 * 2**i for i in range(1, 12))})
"""Numbers of ops in a chain, and of copies: few different ones, as each has a chain of its own."""

_PARTS = 16


@dataclass(frozen=True)
class Timing:
    """Time of one op.

    Attributes
    ----------
    median_us
        Microseconds.
    spread_us
        Interquartile range, in microseconds.
    repeats, ops
        Runs of the graph, and instances of the op in it.
    input_bytes
        Size of all inputs that were read in rotation.
    """

    median_us: float
    spread_us: float
    repeats: int
    ops: int
    input_bytes: int

    def to_json(self) -> dict[str, Any]:
        """As a measurement file has it."""
        return asdict(self)


def session_config(threads: int) -> Any:
    """One op at a time, each on ``threads`` threads; nothing rewritten, shared or fused.

    The first session or eager call of a process makes the pool of threads for all of them.
    """
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=1
    )
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    options = config.graph_options.optimizer_options
    options.opt_level = tf.compat.v1.OptimizerOptions.L0
    options.do_common_subexpression_elimination = False
    options.do_constant_folding = False
    return config


class GraphTimer:
    """Times several ways to compute something of the same inputs, in turns.

    Each is a chain of ops of which every one waits for the one before. What a run costs without
    the ops (starting it, reading the inputs) is measured too and taken off. Graphs are timed as
    they are built: nothing in them is rewritten. Where inputs are copied, a run reads those copies
    that were read longest ago.

    Extents are left open in the graph, so that one serves inputs of any extents, one after the
    other: building it takes longer than running it.

    Parameters
    ----------
    inputs
        What each op is given.
    builders
        Adds one op, or several, to the graph and returns the output; by name.
    threads
        Intra-op threads.
    total_bytes
        The inputs are copied until they make up this size; 0 for a single copy.
    most_ops, most_copies
        Ops in a chain, and copies of the inputs, at most.
    """

    def __init__(
        self,
        inputs: Sequence[Array],
        builders: Mapping[str, Builder],
        threads: int,
        total_bytes: int = 0,
        most_ops: int = 512,
        most_copies: int = 2048,
    ) -> None:
        self._most_ops, self._most_copies = most_ops, most_copies
        self._builders = builders
        self._ops = 0
        self._copies = 0
        self._reads: list[tuple[tf.Tensor, ...]] = []
        self._assigns: list[list[Any]] = []
        self._results: dict[str, tf.Tensor] = {}
        self._calls: dict[tuple[str, int, int, int], Callable[[], object]] = {}
        self._turn = 0
        self._session = tf.compat.v1.Session(graph=tf.Graph(), config=session_config(threads))
        with self._session.graph.as_default():
            self._sources = [
                tf.compat.v1.placeholder(tf.as_dtype(x.dtype), [None] * x.ndim) for x in inputs
            ]
        self.load(inputs, total_bytes)

    def load(self, inputs: Sequence[Array], total_bytes: int = 0) -> None:
        """Take other inputs, of the same types and numbers of dimensions."""
        self._bytes = sum(x.nbytes for x in inputs)
        wanted = max(1, -(-total_bytes // self._bytes))
        copies = next(n for n in (1, 2, *_LENGTHS) if n >= min(wanted, self._most_copies))
        with self._session.graph.as_default():
            while len(self._reads) < copies:
                self._add_copy()
        self._assign(range(copies), inputs)
        empty = [np.zeros([0] * x.ndim, x.dtype) for x in inputs]
        self._assign(range(copies, self._copies), empty)
        self._copies = copies

    def __enter__(self) -> GraphTimer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up the inputs."""
        self._session.close()

    def output(self, name: str) -> Array:
        """What one of them computes."""
        with rewrite.disabled():
            result: Array = self._session.run(self._result(name))
        return result

    def outputs(self) -> dict[str, Array]:
        """What each computes, by name."""
        with rewrite.disabled():
            results: dict[str, Array] = self._session.run(
                {name: self._result(name) for name in self._builders}
            )
        return results

    def measure(self, seconds: float, repeats: int) -> dict[str, Timing]:
        """Time each ``repeats`` times, for about ``seconds`` in all; by name."""
        samples = self.samples(seconds, repeats)
        return {name: self._timing(times) for name, times in samples.items()}

    def samples(self, seconds: float, repeats: int) -> dict[str, list[float]]:
        """Microseconds of each in each round, as `measure` times them; by name."""
        with rewrite.disabled():  # a session sets a graph up when it runs it first
            return self._samples(seconds, repeats)

    def _samples(self, seconds: float, repeats: int) -> dict[str, list[float]]:
        ops = self._length(seconds / (len(self._builders) * repeats))
        chains = {name: self._chains(name, ops) for name in self._builders}
        # On their own: whoever came after one of them would find the other threads asleep.
        empty = self._empty(ops)
        base = statistics.median([_seconds(empty) for _ in range(repeats)])
        samples: dict[str, list[float]] = {name: [] for name in self._builders}
        for name in self._builders:
            self._run(chains[name])
        for number in range(repeats):
            # There and back, so that none has always the same one before it.
            for name in samples if number % 2 else reversed(samples):
                samples[name].append(1e6 * (self._run(chains[name]) - base) / ops)
        self._ops = ops
        return samples

    def _timing(self, times: list[float]) -> Timing:
        low, median, high = statistics.quantiles(times, n=4)
        # What a run takes without the ops was taken off: noise can leave less than nothing.
        median = max(median, LEAST_US)
        return Timing(median, high - low, len(times), self._ops, self._copies * self._bytes)

    def _add_copy(self) -> None:
        """Variables for the inputs. Reads share their memory, and nothing can fold them."""
        reads, assigns = [], []
        for index, source in enumerate(self._sources):
            handle = tf.raw_ops.VarHandleOp(
                dtype=source.dtype,
                shape=source.shape,
                shared_name=f"v{len(self._reads)}_{index}",
            )
            # The sum is a new buffer; the variable would keep that of the source itself.
            value = source + tf.zeros([], source.dtype)
            assigns.append(tf.raw_ops.AssignVariableOp(resource=handle, value=value))
            read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=source.dtype)
            read.set_shape(source.shape)
            reads.append(read)
        self._reads.append(tuple(reads))
        self._assigns.append(assigns)

    def _assign(self, copies: range, inputs: Sequence[Array]) -> None:
        if copies:
            assigns = [assign for copy in copies for assign in self._assigns[copy]]
            self._session.run(assigns, dict(zip(self._sources, inputs)))

    def _result(self, name: str) -> tf.Tensor:
        if name not in self._results:
            with self._session.graph.as_default():
                self._results[name] = self._builders[name](*self._reads[0])
        return self._results[name]

    def _length(self, seconds: float) -> int:
        """Ops of a run that takes about so long; of copies, a run reads one part in sixteen."""
        if self._copies > 1:
            parts = max(1, min(_PARTS, self._copies // _LENGTHS[0]))
            return self._copies // next(n for n in range(parts, 0, -1) if self._copies % n == 0)
        slowest = max(self._seconds_per_op(name) for name in self._builders)
        most = max(_LENGTHS[0], min(self._most_ops, seconds / slowest))
        return max(n for n in _LENGTHS if n <= most)

    def _seconds_per_op(self, name: str) -> float:
        ops = _LENGTHS[0]
        (chain,), empty = self._chains(name, ops), self._empty(ops)
        whole = min(_seconds(chain) for _ in range(3))
        return max(1e-7, (whole - min(_seconds(empty) for _ in range(3))) / ops)

    def _run(self, chains: Sequence[Callable[[], object]]) -> float:
        """Seconds of one of the chains: one whose copies were read longest ago.

        With each round one is left out, so that none of the ways has the same ones every time.
        """
        part = (self._turn + self._turn // len(chains)) % len(chains)
        self._turn += 1
        return _seconds(chains[part])

    def _chains(self, name: str, ops: int) -> list[Callable[[], object]]:
        """All chains of so many ops: one for each part of the copies."""
        step = int(self._copies > 1)
        keys = [(name, start, step, ops) for start in range(0, self._copies, step * ops or 1)]
        # All are built before one is run, since the session takes in what is new before a run.
        new = {key: self._chain(*key) for key in keys if key not in self._calls}
        self._calls |= {key: self._callable(fetches) for key, fetches in new.items()}
        return [self._calls[key] for key in keys]

    def _chain(self, name: str, start: int, step: int, ops: int) -> list[Any]:
        """Adds a chain to the graph. Gives what to fetch."""
        last: list[Any] = []
        with self._session.graph.as_default():
            for i in range(ops):
                with tf.control_dependencies(last):
                    last = [self._builders[name](*self._reads[start + step * i]).op]
        # Inputs that the ops do not use, too, since an empty run reads them.
        return [*last, *self._read_ops(start, step * ops or 1)]

    def _empty(self, ops: int) -> Callable[[], object]:
        """What a run is without its ops."""
        copies = ops if self._copies > 1 else 1
        key = ("", 0, copies, 0)
        if key not in self._calls:
            self._calls[key] = self._callable(self._read_ops(0, copies))
        return self._calls[key]

    def _read_ops(self, start: int, copies: int) -> list[Any]:
        return [tensor.op for copy in self._reads[start : start + copies] for tensor in copy]

    def _callable(self, ops: Sequence[Any]) -> Callable[[], object]:
        call: Callable[[], object] = self._session.make_callable(ops)
        call()  # the first time takes longer
        return call


class LastTimer:
    """Keeps a timer for as long as what it times differs in the inputs alone.

    Parameters
    ----------
    threads
        Intra-op threads.
    sizes
        ``most_ops`` and ``most_copies`` of timers.
    """

    def __init__(self, threads: int, sizes: Mapping[str, int]) -> None:
        self._threads = threads
        self._sizes = sizes
        self._timer: GraphTimer | None = None
        self._kind: object = None

    def load(
        self,
        kind: object,
        inputs: Sequence[Array],
        builders: Mapping[str, Builder],
        total_bytes: int,
    ) -> GraphTimer:
        """A timer with these inputs.

        Parameters
        ----------
        kind
            Tells apart what the builders build.
        inputs, builders, total_bytes
            See :class:`GraphTimer`.
        """
        kind = (kind, tuple((x.dtype, x.ndim) for x in inputs))
        if self._timer is not None and self._kind == kind:
            self._timer.load(inputs, total_bytes)
            return self._timer
        if self._timer is not None:
            self._timer.close()
        self._timer = GraphTimer(inputs, builders, self._threads, total_bytes, **self._sizes)
        self._kind = kind
        return self._timer


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
