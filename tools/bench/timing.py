"""Timing an op inside a TensorFlow graph, free of what Python adds to a call."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import tensorflow as tf

from tf_tvm_ops import rewrite
from tf_tvm_ops.tools.bench.cases import Array
from tf_tvm_ops.tools.bench.worker import LEAST_US

Builder = Callable[..., tf.Tensor]


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
    they are built: nothing in them is rewritten.

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
        Ops in a chain, and copies of the inputs, at most: a large graph takes longer to build than
        to run.
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
        self._most_ops = most_ops
        self._bytes = sum(x.nbytes for x in inputs)
        self._builders = builders
        self._ops = 0
        copies = max(1, min(most_copies, -(-total_bytes // self._bytes)))
        self._session = tf.compat.v1.Session(graph=tf.Graph(), config=session_config(threads))
        with self._session.graph.as_default():
            self._reads = self._variables(inputs, copies)

    def __enter__(self) -> GraphTimer:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def output(self, name: str) -> Array:
        """What one of them computes."""
        with rewrite.disabled(), self._session.graph.as_default():
            result: Array = self._session.run(self._builders[name](*self._reads[-1]))
        return result

    def outputs(self) -> dict[str, Array]:
        """What each computes, by name."""
        with rewrite.disabled(), self._session.graph.as_default():
            found = {name: build(*self._reads[-1]) for name, build in self._builders.items()}
            results: dict[str, Array] = self._session.run(found)
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
        ops = len(self._reads)
        if ops == 1:
            slowest = max(self._seconds_per_op(build) for build in self._builders.values())
            ops = max(
                4, min(self._most_ops, int(seconds / (len(self._builders) * repeats * slowest)))
            )
        runs = {name: self._chain(build, ops) for name, build in self._builders.items()}
        empty = self._chain(None, ops)
        for run in (empty, *runs.values()):
            run()
        empties: list[float] = []
        samples: dict[str, list[float]] = {name: [] for name in runs}
        # On their own: whoever came after one of them would find the other threads asleep.
        empties += [_seconds(empty) for _ in range(repeats)]
        turns = [(run, samples[name]) for name, run in runs.items()]
        for run, _ in turns:
            run()
        for number in range(repeats):
            # There and back, so that none has always the same one before it.
            for run, times in turns if number % 2 else reversed(turns):
                times.append(_seconds(run))
        base = statistics.median(empties)
        self._ops = ops
        return {name: [1e6 * (t - base) / ops for t in times] for name, times in samples.items()}

    def _timing(self, times: list[float]) -> Timing:
        low, median, high = statistics.quantiles(times, n=4)
        # What a run takes without the ops was taken off: noise can leave less than nothing.
        median = max(median, LEAST_US)
        return Timing(median, high - low, len(times), self._ops, len(self._reads) * self._bytes)

    def _variables(self, inputs: Sequence[Array], copies: int) -> list[tuple[tf.Tensor, ...]]:
        """Reads of variables: they share the variables' memory, and nothing can fold them."""
        sources = [tf.compat.v1.placeholder(tf.as_dtype(x.dtype), x.shape) for x in inputs]
        reads: list[tuple[tf.Tensor, ...]] = []
        assigns: list[Any] = []
        for _ in range(copies):
            handles = []
            for source in sources:
                handle = tf.raw_ops.VarHandleOp(
                    dtype=source.dtype, shape=source.shape, shared_name=f"v{len(assigns)}"
                )
                # The sum is a new buffer; the variable would keep that of the source itself.
                value = source + tf.zeros([], source.dtype)
                assigns.append(tf.raw_ops.AssignVariableOp(resource=handle, value=value))
                handles.append((handle, source.dtype))
            reads.append(tuple(tf.raw_ops.ReadVariableOp(resource=h, dtype=d) for h, d in handles))
        self._session.run(assigns, dict(zip(sources, inputs)))
        return reads

    def _seconds_per_op(self, build: Builder) -> float:
        run = self._chain(build, 8)
        run()
        return max(1e-7, min(_seconds(run) for _ in range(3)) / 8)

    def _chain(self, build: Builder | None, ops: int) -> Callable[[], object]:
        with self._session.graph.as_default():
            last = tf.group(*(tensor.op for inputs in self._reads for tensor in inputs))
            if build is not None:
                for i in range(ops):
                    with tf.control_dependencies([last]):
                        last = build(*self._reads[i % len(self._reads)]).op
            call: Callable[[], object] = self._session.make_callable(last)
        return call


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
