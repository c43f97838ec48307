"""``tf-tvm-ops bench --fused``: what scale, addend and transpose cost inside the product.

Each product is measured bare, with a scale and a mask for all heads added, and with its result
transposed to length-first: by ours, where these are part of the kernel, and by stock, where each is
an op that passes over memory again. What counts is the ratio to the bare product of the same run.
All ways take turns in each of many short rounds; give many ``--repeats``. On a machine that others
use too, the quickest rounds say more than the median.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from tf_tvm_ops.tools.bench import report, runner, worker
from tf_tvm_ops.tools.bench.cases import Array, Case, Oracle
from tf_tvm_ops.tools.bench.machine import Machine

MODULE = "tf_tvm_ops.tools.bench.fused"
SCALE = 0.125
TIMING = "timing"
"""What a worker says is running when several ways take turns."""


@dataclass(frozen=True)
class Ratio:
    """Time relative to the bare product.

    Attributes
    ----------
    least
        Of the quickest round of each.
    median, spread
        Of the ratios of all rounds: median, and interquartile range.
    """

    least: float
    median: float
    spread: float

    @classmethod
    def of(cls, times: Sequence[float], bare: Sequence[float]) -> Ratio:
        """Of the times in the same rounds."""
        low, median, high = statistics.quantiles((t / b for t, b in zip(times, bare)), n=4)
        return cls(min(times) / min(bare), median, high - low)

    def __str__(self) -> str:
        return f"×{self.least:.2f} ({self.median:.2f} ±{self.spread / 2:.2f})"


@dataclass(frozen=True)
class Fused:
    """One product at one setting.

    Attributes
    ----------
    case
        The product.
    threads, cache
        The setting.
    served_by
        The kernel that served ours.
    ours_us, stock_us
        Microseconds of the bare product, in the quickest round.
    ours, stock
        By what follows the product: ``"add"`` (scale and addend) and ``"transpose"``.
    """

    case: Case
    threads: int
    cache: str
    served_by: str
    ours_us: float
    stock_us: float
    ours: dict[str, Ratio]
    stock: dict[str, Ratio]


def compare(
    console: Console,
    machine: Machine,
    job: worker.Job,
    threads: Sequence[int],
    out: Path | None,
    progress: Callable[[int, int], None],
) -> None:
    """Measure the products of ``job`` with each number of threads, print and write the results.

    Raises
    ------
    runner.WorkerError
        If a worker failed.
    """
    found: list[Fused] = []
    for count in threads:
        job = replace(job, threads=count)
        for result in runner.results(job, MODULE):
            if "running" in result:
                continue
            found.append(_fused(job, result))
            progress(len(found), len(threads) * len(job.cases) * len(job.caches))
    for count in threads:
        for cache in job.caches:
            chosen = [f for f in found if (f.threads, f.cache) == (count, cache)]
            console.print(_table(chosen, count, cache))
    console.print(
        "Microseconds for the bare product inside a graph; the rest is time relative to it, of the "
        "quickest rounds (and of all: median ± half the interquartile range). Stock is TensorFlow "
        "with oneDNN, one op after another."
    )
    console.print(f"Measured on {machine}.", soft_wrap=True)
    if out is not None:
        document = {"schema": 1, "machine": asdict(machine), "fused": [asdict(f) for f in found]}
        report.write_json(out, document)


def _fused(job: worker.Job, result: dict[str, Any]) -> Fused:
    """What a worker found, in ratios."""
    # What a run takes without the ops was taken off: noise can leave less than nothing.
    samples: dict[str, list[float]] = {
        name: [max(us, worker.LEAST_US) for us in times]
        for name, times in result["samples"].items()
    }
    bare = {name: samples[name] for name in ("ours", "stock")}
    ratios: dict[str, dict[str, Ratio]] = {name: {} for name in bare}
    for name, times in samples.items():
        implementation, _, way = name.partition(" ")
        if way:
            ratios[implementation][way] = Ratio.of(times, bare[implementation])
    return Fused(
        case=job.cases[result["case"]],
        threads=job.threads,
        cache=result["cache"],
        served_by=result["served_by"],
        ours_us=min(bare["ours"]),
        stock_us=min(bare["stock"]),
        **ratios,
    )


def _table(found: Iterable[Fused], threads: int, cache: str) -> Table:
    inputs = "in cache" if cache == "hot" else "not in cache"
    table = Table(title=f"{threads} thread{'s' if threads > 1 else ''}, inputs {inputs}")
    table.add_column("site", overflow="fold", max_width=36)
    table.add_column("product")
    table.add_column("served by", overflow="fold", max_width=30)
    for name in ("ours", "scale + mask", "transpose", "stock", "scale + mask", "transpose"):
        table.add_column(name, justify="right")
    for row in found:
        cells = []
        for us, ratios in ((row.ours_us, row.ours), (row.stock_us, row.stock)):
            cells.append(f"{us:.1f}")
            cells += [str(ratios.get(way, "")) for way in ("add", "transpose")]
        table.add_row(row.case.site, str(row.case), report.brief(row.served_by), *cells)
    return table


def mask_of(case: Case, seed: int = 1) -> Array:
    """A random addend that all heads share: [batch, 1, M, N]."""
    *batch, m, n = case.out_shape
    shape = (*batch[:-1], 1, m, n) if len(batch) > 1 else (m, n)
    return case.random(shape, np.random.default_rng(seed))


def measure(job: worker.Job) -> None:
    """Measure, printing a JSON object for each product and cache state."""
    tf, ours = worker.start(job)
    from tf_tvm_ops.ops import served_by
    from tf_tvm_ops.tools.bench.timing import LastTimer

    timers = LastTimer(job.threads, job.sizes)
    for index, case in enumerate(job.cases):
        adjoint = {"adj_x": case.adj_x, "adj_y": case.adj_y}
        rank = len(case.out_shape)
        order = [*range(rank - 3), rank - 2, rank - 3, rank - 1]

        def stock(x: Any, y: Any, *_: Any, adjoint: dict[str, bool] = adjoint) -> Any:
            return tf.raw_ops.BatchMatMulV2(x=x, y=y, **adjoint)

        def stock_add(x: Any, y: Any, mask: Any, stock: Any = stock) -> Any:
            return tf.raw_ops.AddV2(x=tf.raw_ops.Mul(x=stock(x, y, mask), y=SCALE), y=mask)

        def bare(x: Any, y: Any, *_: Any, adjoint: dict[str, bool] = adjoint) -> Any:
            return ours.batch_matmul(x, y, **adjoint)

        def add(x: Any, y: Any, mask: Any, adjoint: dict[str, bool] = adjoint) -> Any:
            return ours.batch_matmul_add(x, y, mask, **adjoint, scale=SCALE)

        ways: dict[str, Any] = {"ours": bare, "stock": stock}
        if not job.bare:
            ways |= {"ours add": add, "stock add": stock_add}
        if rank > 2 and not job.bare:

            def transpose(x: Any, y: Any, _: Any, adjoint: dict[str, bool] = adjoint) -> Any:
                return ours.batch_matmul_transpose(x, y, **adjoint)

            def stock_transpose(
                x: Any, y: Any, mask: Any, stock: Any = stock, order: list[int] = order
            ) -> Any:
                return tf.raw_ops.Transpose(x=stock(x, y, mask), perm=order)

            ways |= {"ours transpose": transpose, "stock transpose": stock_transpose}
        lhs, rhs = case.operands()
        mask = mask_of(case)
        oracle = Oracle(case, lhs, rhs)
        server = served_by(lhs, rhs, **adjoint).numpy().decode()
        for cache in job.caches:
            total = job.cold_bytes if cache == "cold" else 0
            inputs = (lhs, rhs) if job.bare else (lhs, rhs, mask)
            timer = timers.load(adjoint, inputs, ways, total)
            for name in ways:
                # Who is to blame if this is the last that is heard.
                worker.emit({"case": index, "running": name})
                _check(oracle, name, mask, timer.output(name))
            worker.emit({"case": index, "running": TIMING})
            samples = timer.samples(job.seconds, job.repeats)
            # A kernel that fails is passed over: what was timed was another one.
            worker.emit({"case": index, "running": "ours"})
            worker.check_server(case, server, served_by(lhs, rhs, **adjoint))
            worker.emit({"case": index, "cache": cache, "served_by": server, "samples": samples})


def _check(oracle: Oracle, name: str, mask: Array, got: Array) -> None:
    if name.endswith("transpose"):
        got = got.swapaxes(-3, -2)
    if name.endswith("add"):
        error = oracle.worst_error(got, SCALE, mask)
    else:
        error = oracle.worst_error(got)
    if error > 1:
        raise worker.WrongAnswerError(
            f"{name}: {oracle.case}: {error:.3g} times the rounding allowed"
        )


if __name__ == "__main__":
    measure(worker.Job.load(sys.stdin.read()))
