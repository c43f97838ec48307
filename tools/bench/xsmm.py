"""Our kernels against libxsmm's on one thread, without TensorFlow.

libxsmm compiles small products at run time and is the yardstick for them. It is not a requirement
of this package: on Debian it comes with ``libxsmm-dev``.
"""

from __future__ import annotations

import ctypes
import math
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from tf_tvm_ops.kernels.host_memory import aligned_copy
from tf_tvm_ops.library import native
from tf_tvm_ops.tools.bench import report
from tf_tvm_ops.tools.bench.cases import Array, Case, Oracle
from tf_tvm_ops.tools.bench.machine import Machine

_SOURCE = Path(__file__).with_name("xsmm_shim.c")
_LIBRARIES = ("-lxsmm", "-lxsmmnoblas", "-lm")
_REPEATS = 15
_SECONDS = 0.05
_LEAST_BYTES = 1 << 20
"""Smaller inputs are repeated in the batch up to this: calls from Python would count too much."""


@dataclass(frozen=True)
class Result:
    """One product, one thread.

    Attributes
    ----------
    case
        The product.
    kernel
        Symbol of ours.
    ours_us, xsmm_us
        Median microseconds of the whole batch; NaN where libxsmm has no kernel. It has none for
        right operands stored [N, K]: its own transposition of each is part of the time.
    rearranged_us
        The same without that, of right operands stored [K, N] beforehand; None where there is
        nothing to transpose.
    """

    case: Case
    kernel: str
    ours_us: float
    xsmm_us: float
    rearranged_us: float | None = None


class UnavailableError(RuntimeError):
    """libxsmm cannot be used here; the message says why."""


def compare(
    console: Console,
    here: Machine,
    cases: Sequence[Case],
    packs: Sequence[str],
    out: Path | None,
) -> None:
    """Measure, print a table, and write JSON to ``out`` if it is given."""
    dispatcher = native().global_dispatcher()
    for pack in packs:
        dispatcher.load_pack(pack)
    with tempfile.TemporaryDirectory(prefix="tf_tvm_ops_xsmm_") as folder:
        try:
            multiply = build(Path(folder))
        except UnavailableError as error:
            console.print(f"No comparison with libxsmm: {error}", soft_wrap=True)
            return
        # libxsmm's kernels here are those for float32.
        cases = [case for case in cases if case.dtype == "float32"]
        results = [_measure(dispatcher, multiply, case) for case in cases]
    console.print(_table(results))
    console.print(f"Measured on {here}.", soft_wrap=True)
    if out is not None:
        document = {"machine": asdict(here), "results": [asdict(r) for r in results]}
        report.write_json(out, document)


def build(folder: Path) -> Callable[..., int]:
    """Compile the shim into ``folder`` and return its function.

    Raises
    ------
    UnavailableError
        If there is no C compiler, or libxsmm is not installed.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        raise UnavailableError("there is no C compiler (cc) on this machine.")
    library = folder / "xsmm_shim.so"
    command = [compiler, "-O2", "-shared", "-fPIC", str(_SOURCE), "-o", str(library), *_LIBRARIES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line or "cannot" in line]
        reason = (lines or done.stderr.splitlines() or ["no message"])[0].strip()
        raise UnavailableError(f"it is not installed (on Debian: libxsmm-dev): {reason}")
    function: Callable[..., int] = ctypes.CDLL(str(library)).tf_tvm_ops_bench_xsmm
    return function


def _measure(dispatcher: Any, multiply: Callable[..., int], case: Case) -> Result:
    case = _enlarged(case)
    lhs, rhs = map(aligned_copy, case.operands())
    a = lhs.swapaxes(-1, -2) if case.adj_x else lhs
    b = rhs.swapaxes(-1, -2) if case.adj_y else rhs
    batch, (m, k), n = math.prod(a.shape[:-2]), a.shape[-2:], b.shape[-1]
    plain = aligned_copy(b)
    scratch = aligned_copy(np.empty((k, n), np.float32))
    # All write to the same memory: a result that begins elsewhere may be faster or slower to write.
    result = aligned_copy(np.empty((*a.shape[:-1], n), np.float32))

    def ours() -> Array:
        dispatcher.matmul(a, b, out=result)
        return result

    def xsmm(right: Array, workspace: Array | None) -> Array | None:
        pointers = (ctypes.c_void_p(x.ctypes.data) for x in (lhs, right, result))
        sizes = (ctypes.c_long(batch), m, n, k, int(case.adj_x))
        to = None if workspace is None else ctypes.c_void_p(workspace.ctypes.data)
        failed = multiply(*pointers, *sizes, to)
        return None if failed else result

    ways: dict[str, Callable[[], Array | None]] = {
        "ours_us": ours,
        "xsmm_us": partial(xsmm, rhs, scratch if case.adj_y else None),
    }
    if case.adj_y:
        ways["rearranged_us"] = partial(xsmm, plain, None)
    kernel = dispatcher.matmul(a, b, out=result)[1]
    oracle = Oracle(case, lhs, rhs)
    for name, way in ways.items():
        result.fill(np.nan)
        got = way()
        if got is not None and oracle.worst_error(got) > 1:
            raise RuntimeError(f"{name}: the result of {case} is wrong; nothing was measured")
    if ways["xsmm_us"]() is None:
        return Result(case, kernel.symbol, _interleaved(ours)[0], math.nan)
    return Result(case, kernel.symbol, **dict(zip(ways, _interleaved(*ways.values()))))


def _enlarged(case: Case) -> Case:
    times = -(-_LEAST_BYTES // case.input_bytes)
    if times == 1:
        return case
    return replace(case, lhs_shape=(times, *case.lhs_shape), rhs_shape=(times, *case.rhs_shape))


def _interleaved(*functions: Callable[[], object]) -> list[float]:
    """Median microseconds of each, measured in turns."""
    counts = []
    for function in functions:
        function()
        counts.append(max(1, int(_SECONDS / _REPEATS / max(1e-7, _seconds(function, 3)))))
    samples: list[list[float]] = [[] for _ in functions]
    for _ in range(_REPEATS):
        for function, count, times in zip(functions, counts, samples, strict=True):
            function()  # what the one before had in the caches is no business of this one
            times.append(1e6 * _seconds(function, count))
    return [statistics.median(times) for times in samples]


def _seconds(function: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        function()
    return (time.perf_counter() - start) / count


def _table(results: Sequence[Result]) -> Table:
    table = Table(title="One thread, the whole batch, without TensorFlow")
    table.add_column("site", overflow="fold", max_width=36)
    table.add_column("product")
    table.add_column("kernel", overflow="fold", max_width=36)
    for name in ("libxsmm µs", "[K, N] µs", "ours µs", "× libxsmm", "× [K, N]"):
        table.add_column(name, justify="right")
    for r in results:
        times = (r.xsmm_us, r.rearranged_us, r.ours_us)
        cells = ["" if us is None else "none" if math.isnan(us) else f"{us:.1f}" for us in times]
        cells += ["" if ratio is None else f"{ratio:.2f}" for ratio in _ratios(r)]
        table.add_row(r.case.site, str(r.case), report.brief(r.kernel), *cells)
    table.add_section()
    means = []
    for ratios in zip(*(_ratios(r) for r in results)):
        known = [ratio for ratio in ratios if ratio is not None]
        means.append(f"{report.geometric_mean(known):.2f} of {len(known)}" if known else "")
    table.add_row("geometric means", *[""] * 5, *means)
    table.caption = (
        "libxsmm transposes right operands stored [N, K] first, which is part of its time; "
        "[K, N]: without that, had they been stored so"
    )
    return table


def _ratios(result: Result) -> tuple[float | None, float | None]:
    """How many times as long libxsmm takes: with the same operands, and with [K, N]."""
    if math.isnan(result.xsmm_us):
        return None, None
    rearranged = result.rearranged_us
    return (
        result.xsmm_us / result.ours_us,
        None if rearranged is None else rearranged / result.ours_us,
    )
