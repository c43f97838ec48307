"""The page of a tuning run: everything that was measured, in one HTML file."""

from __future__ import annotations

import importlib.util
import json
import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from tf_tvm_ops.kernels.cuda.targets import is_cuda
from tf_tvm_ops.kernels.manifest import Manifest
from tf_tvm_ops.kernels.targets import parse_target
from tf_tvm_ops.kernels.tuning import ceilings
from tf_tvm_ops.kernels.tuning.tuner import Found
from tf_tvm_ops.tools.bench import machine
from tf_tvm_ops.tools.bench.report import geometric_mean
from tf_tvm_ops.tools.decisions import KERNEL, decision, microseconds
from tf_tvm_ops.tools.files import check_writable, publish
from tf_tvm_ops.tools.tune import page
from tf_tvm_ops.tools.tune.page import Cell, cell
from tf_tvm_ops.tools.tune.results import STOCK, Results, Row, Setting, config_text, settings

_STOCK_NAMES = {"onednn": "oneDNN", "eigen": "Eigen"}
_MOST_MESSAGES = 5
_CLEAR_GAIN = 1.05
"""Within a twentieth is what repeated runs differ by."""


def check(path: Path) -> None:
    """Refuse, before a run begins, a report that could not be made after it.

    Raises
    ------
    ValueError
        If matplotlib is missing, or the file cannot be written.
    """
    try:
        missing = importlib.util.find_spec("matplotlib") is None
    except ValueError:
        missing = True
    if missing:
        raise ValueError(
            "--report: its charts are drawn by matplotlib: pip install 'tf-tvm-ops[plots]'"
        )
    check_writable(path)


def write(
    path: Path,
    found: Mapping[str, Sequence[Found]],
    pack: Manifest | None,
    here: Collection[str],
    peer: Mapping[str, float] | None = None,
) -> None:
    """Measure the ceilings of this machine, if it is the one, and write the page.

    Parameters
    ----------
    path
        The file.
    found
        What the search measured, by target.
    pack
        The manifest that came of it.
    here
        Targets whose candidates were measured on this machine.
    peer
        Of :func:`read_peer`.

    Raises
    ------
    ValueError
        If the file cannot be written.
    """
    results = []
    for name, of_target in found.items():
        target = None if is_cuda(name) else parse_target(name)
        roofs = None
        if target is not None and name in here and target.runs_here():
            roofs = ceilings.measure(target)
        results.append(Results.of(name, of_target, pack, roofs))
    publish(path, document(results, machine.describe(), pack, peer or {}).encode())


def read_peer(path: Path) -> dict[str, float]:
    """How many times faster each kernel is than libxsmm, by symbol.

    Parameters
    ----------
    path
        What ``tf-tvm-ops bench --peer libxsmm --out`` wrote.

    Raises
    ------
    ValueError
        If it is no such file.
    """
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["results"]
        ratios = {row["kernel"]: row["xsmm_us"] / row["ours_us"] for row in rows}
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; expected results of bench --peer") from error
    except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise ValueError(
            f"{path}: not what `tf-tvm-ops bench --peer libxsmm --out` writes ({error!r})"
        ) from error
    return {symbol: ratio for symbol, ratio in ratios.items() if not math.isnan(ratio)}


def document(
    results: Sequence[Results],
    here: machine.Machine,
    pack: Manifest | None,
    peer: Mapping[str, float],
) -> str:
    """The page as HTML."""
    problems = len({row.state.workload for part in results for row in part.rows})
    title = f"Tuning of {problems} problem{'' if problems == 1 else 's'}"
    body = [f"<h1>{page.text(title)}</h1>", page.facts(_machine(here, pack))]
    for part in results:
        body += _target(part, peer)
    return page.document(title, body)


def _machine(here: machine.Machine, pack: Manifest | None) -> Iterator[tuple[str, str]]:
    yield "processor", f"{here.cpu}, {here.cores} cores, {here.level}; {', '.join(here.caches)}"
    yield "system", here.system
    versions = dict(here.versions) | dict(pack.made_with if pack is not None else {})
    yield "versions", ", ".join(f"{name} {version}" for name, version in versions.items())


def _target(part: Results, peer: Mapping[str, float]) -> Iterator[str]:
    from tf_tvm_ops.tools.tune import plot

    yield f"<h2>{page.text(part.target)}</h2>"
    yield page.facts(_summary(part))
    if not any(row.best for row in part.rows):
        yield "<p>No candidate was timed.</p>"
    else:
        yield from _against_stock(part)
        yield "<h3>The space of each problem</h3>"
        yield page.figure(
            plot.spaces(part.rows),
            "Each mark is a candidate that was timed, on one thread without TensorFlow, the best "
            "at 1×; problems by multiply-adds of a pass over all matrices (·number). Stock is "
            "relative to the pack's kernel, both as ops inside a graph: left of or below 1× it is "
            "faster.",
        )
        if part.ceilings is not None:
            yield from _roofline(part, part.ceilings, plot.roofline(part, part.ceilings))
        else:
            yield (
                '<p class="soft">Candidates were measured on another machine than the one above, '
                "whose ceilings are not known.</p>"
            )
        if part.gains:
            yield "<h3>What measuring gained over the cost model</h3>"
            yield page.figure(
                plot.gains(part.gains),
                "How many problems gained how much: at 1× the cost model had chosen the best that "
                "was found.",
            )
        yield from _lessons(part)
    yield from _failures(part)
    yield "<h3>All problems</h3>"
    yield _problems(part, peer)


def _summary(part: Results) -> Iterator[tuple[str, str]]:
    total = sum(len(row.state.space) for row in part.rows)
    yield "problems", f"{len(part.rows)}"
    yield "candidates", f"{part.measured} of {total} measured"
    failed = ", ".join(f"{count} {status}" for status, count in part.statuses.items())
    yield "failures", failed or "none"
    gains = part.gains
    if gains:
        clear = sum(gain >= _CLEAR_GAIN for gain in gains)
        yield (
            "gain over the cost model",
            f"geometric mean {geometric_mean(gains):.3f}× of {len(gains)} problems; median "
            f"{statistics.median(gains):.2f}×, greatest {gains[-1]:.2f}×; "
            f"{_CLEAR_GAIN:g}× or more in {clear}",
        )
    shares = [row.share for row in part.rows if row.share is not None]
    if shares:
        yield (
            "share of the ceiling",
            f"median {statistics.median(shares):.0%}, {min(shares):.0%} to {max(shares):.0%}",
        )


def _against_stock(part: Results) -> Iterator[str]:
    found = settings(part.rows)
    yield "<h3>Against stock TensorFlow</h3>"
    if not found:
        yield "<p>Not measured: the run was made without the gate, and every kernel serves.</p>"
        return
    heads = ("epilogue", "operands", "stock", "threads", "measured", "won", "lost", "× stock")
    yield page.table((*heads, "smallest", "greatest"), map(_setting, found), words=range(3))
    yield (
        '<p class="soft">Won, lost: faster, slower by more than the noise. × stock: how many times '
        "faster the kernel is, geometric mean. Only what the first setting leaves open is measured "
        "in the others: small wins with cold operands, what does not serve with an epilogue.</p>"
    )


def _setting(setting: Setting) -> list[Cell | str]:
    speedups = setting.speedups
    mean = geometric_mean(speedups)
    return [
        setting.epilogue,
        f"{setting.cache} in cache" if setting.cache == "hot" else "not in cache",
        _STOCK_NAMES[setting.stock],
        str(setting.threads),
        str(len(speedups)),
        cell(setting.won, kind="won" if setting.won else ""),
        cell(setting.lost, kind="lost" if setting.lost else ""),
        f"{mean:.2f}",
        f"{min(speedups, default=math.nan):.2f}",
        f"{max(speedups, default=math.nan):.2f}",
    ]


def _roofline(part: Results, here: ceilings.Ceilings, svg: str) -> Iterator[str]:
    yield "<h3>Below the machine's ceilings</h3>"
    yield page.figure(
        svg,
        "Ceilings were measured on one core: fused multiply-adds on registers alone, and loads "
        "from each cache and from memory. Intensity follows from the definition: two operations "
        "for a multiply-add, and each element of operands and result once.",
    )
    peaks = ", ".join(f"{dtype} {rate:.1f}" for dtype, rate in here.gflops.items())
    loads = ", ".join(f"{level.name} {level.gigabytes_per_second:.1f}" for level in here.levels)
    yield page.facts((("arithmetic, GFLOP/s", peaks), ("loads, GB/s", loads)))


def _lessons(part: Results) -> Iterator[str]:
    if not part.lessons:
        return
    yield "<h3>What the cost model was taught</h3>"
    yield page.table(
        ("rule", "timed", "correction, least", "greatest", "error before", "after"),
        (
            [
                lesson.rule,
                str(lesson.timed),
                f"{lesson.least:.2f}×",
                f"{lesson.greatest:.2f}×",
                f"{math.expm1(lesson.error_before):.0%}",
                f"{math.expm1(lesson.error_after):.0%}",
            ]
            for lesson in part.lessons
        ),
    )
    yield (
        '<p class="soft">The correction is fitted to all timed candidates of the target and '
        "multiplies what the model expects of one, relative to the others of its problem. Error: "
        "the standard deviation of what is expected within a problem, without and with it.</p>"
    )


def _failures(part: Results) -> Iterator[str]:
    if not part.statuses:
        return
    yield "<h3>Failures</h3>"
    for status, count in part.statuses.items():
        yield f"<p>{page.text(status)}: {count}. The first messages that differ:</p>"
        yield page.bullets(part.messages(status, _MOST_MESSAGES))


def _problems(part: Results, peer: Mapping[str, float]) -> str:
    heads = [
        *("problem", "serves, with\noneDNN", "serves,\nwithout"),
        *("space", "measured", "failed", "multiply-\nadds", "model's\nchoice µs", "best µs", "±"),
        *("gain", "GFLOP/s", "share of\nceiling", "operands\nin"),
        *("ours, in\ngraph µs", "oneDNN µs", "ours, in\ngraph µs", "Eigen µs"),
    ]
    if peer:
        heads.append("× libxsmm")
    words = (0, 1, 2, len(heads), len(heads) + 1)
    heads += ["best config", "cost model's choice"]
    rows = (list(_problem(row, peer)) for row in part.rows)
    return page.table(heads, rows, words=words, scroll=True)


def _problem(row: Row, peer: Mapping[str, float]) -> Iterator[Cell | str]:
    state, best, first = row.state, row.best, row.first_outcome
    yield row.name
    yield from (_decision(row, stock) for stock in STOCK)
    yield str(len(state.space))
    yield str(len(state.outcomes))
    failed = len(row.failures)
    yield cell(failed, failed, "lost" if failed else "")
    yield cell(f"{row.multiply_adds:,}", row.multiply_adds)
    timed = first is not None and first.ok
    yield _number(first.median_us if first is not None and timed else None)
    yield _number(best.median_us if best else None)
    yield _number(best.spread_us / 2 if best else None)
    yield cell(f"{row.gain:.2f}×", row.gain) if row.gain else "–"
    yield cell(f"{row.gflops:.1f}", row.gflops) if row.gflops else "–"
    yield cell(f"{row.share:.0%}", row.share) if row.share else "–"
    yield row.ceilings.level(state.workload).name if row.ceilings else "–"
    for name in STOCK:
        duel = row.stock(name)
        yield _number(duel.kernel_us if duel else None)
        yield _number(duel.stock_us if duel else None)
    if peer:
        ratio = peer.get(row.kernel.symbol) if row.kernel else None
        yield cell(f"{ratio:.2f}", ratio) if ratio else "–"
    yield config_text(state.best.to_json()) if state.best else "–"
    yield config_text(row.first.to_json()) if row.first else "–"


def _decision(row: Row, stock: str) -> Cell | str:
    if row.kernel is None:
        return "no kernel"
    if row.timing is None:
        return f"{KERNEL}, not measured"
    word = decision(row.kernel, row.timing, onednn=stock == "onednn")
    return cell(word, kind="won" if word == KERNEL else "lost")


def _number(value: float | None) -> Cell:
    return cell("–") if value is None else cell(microseconds(value), value)
