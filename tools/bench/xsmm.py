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
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

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
        Median microseconds of the whole batch; NaN where libxsmm has no kernel.
    rearranged
        libxsmm has no kernel for the layout of the right operand and was given one stored [K, N].
    """

    case: Case
    kernel: str
    ours_us: float
    xsmm_us: float
    rearranged: bool


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
    _keep_freed_memory()
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


def _keep_freed_memory() -> None:
    """Let results reuse freed memory: both sides allocate one in every call."""
    libc = ctypes.CDLL(None)
    m_trim_threshold, m_mmap_threshold = -1, -3
    libc.mallopt(m_mmap_threshold, 1 << 30)
    libc.mallopt(m_trim_threshold, 1 << 30)


def _measure(dispatcher: Any, multiply: Callable[..., int], case: Case) -> Result:
    case = _enlarged(case)
    lhs, rhs = case.operands()
    a = lhs.swapaxes(-1, -2) if case.adj_x else lhs
    b = rhs.swapaxes(-1, -2) if case.adj_y else rhs
    batch, (m, k), n = math.prod(a.shape[:-2]), a.shape[-2:], b.shape[-1]
    plain = np.ascontiguousarray(b)

    def ours() -> Array:
        result: Array = dispatcher.matmul(a, b)[0]
        return result

    def xsmm() -> Array | None:
        result = np.empty((*a.shape[:-1], n), np.float32)
        pointers = (ctypes.c_void_p(x.ctypes.data) for x in (lhs, plain, result))
        failed = multiply(*pointers, ctypes.c_long(batch), m, n, k, int(case.adj_x))
        return None if failed else result

    kernel = dispatcher.matmul(a, b)[1]
    oracle = Oracle(case, lhs, rhs)
    for name, got in (("ours", ours()), ("libxsmm", xsmm())):
        if got is not None and oracle.worst_error(got) > 1:
            raise RuntimeError(f"{name}: the result of {case} is wrong; nothing was measured")
    if xsmm() is None:
        return Result(case, kernel.symbol, _interleaved(ours)[0], math.nan, case.adj_y)
    ours_us, xsmm_us = _interleaved(ours, xsmm)
    return Result(case, kernel.symbol, ours_us, xsmm_us, case.adj_y)


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
    for name in ("libxsmm µs", "ours µs", "× libxsmm"):
        table.add_column(name, justify="right")
    for r in results:
        ratio = r.xsmm_us / r.ours_us
        mark = " †" if r.rearranged else ""
        xsmm = "none" if math.isnan(r.xsmm_us) else f"{r.xsmm_us:.1f}{mark}"
        row = (xsmm, f"{r.ours_us:.1f}", "" if math.isnan(ratio) else f"{ratio:.2f}")
        table.add_row(r.case.site, str(r.case), report.brief(r.kernel), *row)
    ratios = [r.xsmm_us / r.ours_us for r in results if not math.isnan(r.xsmm_us)]
    table.add_section()
    mean = report.geometric_mean(ratios)
    table.add_row(f"geometric mean of {len(ratios)}", *[""] * 4, f"{mean:.2f}")
    table.caption = "† libxsmm was given the right operand stored as [K, N]"
    return table
