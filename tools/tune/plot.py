"""Charts of a tuning run as SVG, for a page that is light or dark. Needs matplotlib.

Colours are variables of the page's style, which has them for light and dark: those of data are
from Okabe and Ito's palette, which colour-blind people tell apart, and each series has a marker of
its own.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from tf_tvm_ops.kernels.tuning.ceilings import Ceilings
from tf_tvm_ops.tools.tune.results import STOCK, Results, Row

_INK, _GRID, _BLUE, _RED, _GREEN, _PINK = (f"#0{i}0{i}0{i}" for i in range(1, 7))
_VARIABLES = {
    _INK: "var(--ink)",
    _GRID: "var(--grid)",
    _BLUE: "var(--blue)",
    _RED: "var(--red)",
    _GREEN: "var(--green)",
    _PINK: "var(--pink)",
}
"""Colours that stand for the page's."""

_GREY = "#808080"
_RULE_MARKS = (("o", _BLUE), ("^", _RED), ("s", _GREEN), ("D", _PINK), ("v", _GREY), ("P", _BLUE))
_STOCK_MARKS = {"onednn": ("^", _GREEN, "stock, oneDNN"), "eigen": ("s", _PINK, "stock, Eigen")}
_LINES = ("-", "--", "-.", ":", (0, (1, 4)))

_WIDTH = 10.5
_MOST_NAMED = 60
"""Problems that are named one by one; of more, some are told by their size."""

_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tf-tvm-ops",
    "font.size": 9,
    "axes.titlesize": 10,
    "legend.frameon": False,
    "legend.fontsize": 9,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), _INK),
    **dict.fromkeys(("xtick.color", "ytick.color"), _INK),
    "grid.color": _GRID,
    **dict.fromkeys(("axes.facecolor", "figure.facecolor", "savefig.facecolor"), "none"),
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def spaces(rows: Sequence[Row]) -> str:
    """Every timed candidate of every problem, relative to the best one, and stock.

    A line for each problem where they are few enough to be named; otherwise a column, and stock in
    a part of its own.
    """
    shown = [row for row in rows if row.best is not None]
    named = len(shown) <= _MOST_NAMED
    height = 1.3 + (0.2 if len(shown) > 8 else 0.32) * len(shown) if named else 7.5
    with matplotlib.rc_context(_STYLE):
        figure = _figure(height)
        parts = [figure.subplots()] * 2 if named else figure.subplots(2, sharex=True)
        _candidates(parts[0], shown, named)
        if any(row.timing for row in shown):
            _stock(parts[1], shown, named)
        elif not named:
            parts[1].remove()
        for axes in dict.fromkeys(figure.axes):
            _space_axes(axes, shown, named, last=axes is figure.axes[-1])
        figure.legend(loc="outside upper left", ncols=4, handletextpad=0.2)
        return _svg(figure, f"Times of all candidates of {len(shown)} problems")


def _candidates(axes: Any, rows: Sequence[Row], named: bool) -> None:
    size = 16 if named else 6
    points = [(rank, ratio) for rank, row in enumerate(rows) for ratio in row.ratios]
    style = {"s": size, "color": _GREY, "alpha": 0.45, "linewidths": 0, "label": "candidate"}
    # Thousands of marks are a picture: as shapes they would make the page slow.
    axes.scatter(*_places(points, named), rasterized=not named, **style)
    points = [(rank, row.gain) for rank, row in enumerate(rows) if row.gain]
    style = {"s": 2 * size, "marker": "D", "facecolors": "none", "edgecolors": _RED}
    style |= {"linewidths": 1.1 if named else 0.9, "label": "cost model's choice"}
    axes.scatter(*_places(points, named), **style)


def _stock(axes: Any, rows: Sequence[Row], named: bool) -> None:
    for name in STOCK:
        marker, color, label = _STOCK_MARKS[name]
        duels = [(rank, row.stock(name)) for rank, row in enumerate(rows)]
        points = [
            (rank, duel.stock_us / duel.kernel_us)
            for rank, duel in duels
            if duel is not None and min(duel.kernel_us, duel.stock_us) > 0
        ]
        style = {"s": 26 if named else 13, "alpha": 0.85, "linewidths": 0}
        axes.scatter(*_places(points, named), marker=marker, color=color, label=label, **style)


def _places(points: Sequence[tuple[float, float]], named: bool) -> tuple[list[float], list[float]]:
    """Of points of rank and time, across and up."""
    ranks, times = [rank for rank, _ in points], [time for _, time in points]
    return (times, ranks) if named else (ranks, times)


def _space_axes(axes: Any, rows: Sequence[Row], named: bool, *, last: bool) -> None:
    times, problems = (axes.xaxis, axes.yaxis) if named else (axes.yaxis, axes.xaxis)
    (axes.set_xscale if named else axes.set_yscale)("log")
    (axes.axvline if named else axes.axhline)(1, color=_INK, linewidth=0.8, zorder=0)
    times.set_major_locator(LogLocator(subs=(1, 2, 5)))
    times.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    times.set_minor_formatter(NullFormatter())
    times.grid(visible=True, linewidth=0.6)
    limits = (-0.7, len(rows) - 0.3)
    if named:
        times.set_label_text("time, relative to the best candidate")
        problems.set_ticks(range(len(rows)), labels=[row.name for row in rows])
        axes.set_ylim(limits[::-1])  # the smallest on top
    else:
        best = "the pack's kernel" if last and len(axes.figure.axes) > 1 else "the best candidate"
        times.set_label_text(f"time, relative to\n{best}")
        # Never more than a dozen names, whose places follow from the number of problems.
        ranks = sorted({round(i * (len(rows) - 1) / 10) for i in range(11)})
        problems.set_ticks(ranks, labels=[_short(rows[rank].multiply_adds) for rank in ranks])
        axes.set_xlim(limits)
        if last:
            problems.set_label_text(f"{len(rows)} problems, by multiply-adds of a pass")
    axes.set_axisbelow(True)


def roofline(results: Results, ceilings: Ceilings) -> str:
    """Achieved GFLOP/s of the best candidates over arithmetic intensity, below the ceilings."""
    by_rule: dict[str, list[tuple[float, float]]] = {}
    for row in results.rows:
        if row.gflops is not None and row.state.best is not None:
            rule = row.state.best.rule.name.removeprefix("cpu_")
            by_rule.setdefault(rule, []).append((row.intensity, row.gflops))
    points = [point for found in by_rule.values() for point in found]
    with matplotlib.rc_context(_STYLE):
        figure = _figure(5.2)
        axes = figure.subplots()
        _roofs(axes, results, ceilings, points)
        size = 34 if len(points) <= 100 else 18
        for (rule, found), (marker, color) in zip(sorted(by_rule.items()), _RULE_MARKS * 9):
            style = {"s": size, "marker": marker, "color": color, "alpha": 0.75, "linewidths": 0}
            axes.scatter(*zip(*found), label=f"rule {rule}", zorder=3, **style)
        axes.set(
            xscale="log",
            yscale="log",
            xlabel="arithmetic intensity, FLOP for each byte of operands and result",
            ylabel="GFLOP/s of the best candidate, one core",
        )
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())
        axes.grid(visible=True, linewidth=0.6)
        axes.set_axisbelow(True)
        figure.legend(loc="outside right upper")
        return _svg(figure, f"Roofline of {results.target}")


def _roofs(
    axes: Any, results: Results, ceilings: Ceilings, points: Sequence[tuple[float, float]]
) -> None:
    dtypes = {row.problem.dtype for row in results.rows}
    peaks: dict[float, list[str]] = {}
    for dtype, gflops in ceilings.gflops.items():
        if dtype in dtypes:
            peaks.setdefault(gflops, []).append(dtype)
    # Without a peak, slopes are drawn as high as the points go.
    top = max([*peaks, *(y for _, y in points)], default=1.0)
    ridges = [top / level.gigabytes_per_second for level in ceilings.levels]
    left = min([*ridges, *(x for x, _ in points)]) / 2
    right = max([*ridges, *(x for x, _ in points)]) * 2
    for level, line in zip(ceilings.levels, _LINES):
        rate = level.gigabytes_per_second
        label = f"{level.name}: {_digits(rate)} GB/s"
        ends = (left, top / rate), (left * rate, top)
        axes.plot(*ends, color=_INK, linestyle=line, linewidth=1, label=label, zorder=1)
    for gflops, names in peaks.items():
        start = gflops / max(level.gigabytes_per_second for level in ceilings.levels)
        axes.plot((start, right), (gflops, gflops), color=_INK, linewidth=1.6, zorder=1)
        axes.annotate(
            f"{', '.join(names)}: {_digits(gflops)} GFLOP/s",
            *((right, gflops), (0, 3), "data", "offset points"),
            ha="right",
            va="bottom",
        )
    axes.set_xlim(left, right)
    lowest = min([*(y for _, y in points), top / 4])
    axes.set_ylim(lowest / 2, top * 1.6)


def gains(values: Sequence[float]) -> str:
    """How many problems gained how much over the cost model's choice."""
    with matplotlib.rc_context(_STYLE):
        figure = _figure(2.9)
        axes = figure.subplots()
        width = 0.05
        last = max(4, math.ceil(math.log2(max(values)) / width + 1e-9))
        edges = [2 ** (width * i) for i in range(last + 1)]
        axes.hist(values, bins=edges, color=_BLUE, rwidth=0.9)
        axes.set(xscale="log", ylabel="problems")
        axes.set_xlabel("time of the cost model's choice, relative to the best candidate")
        # As many steps as leave room for each number.
        steps = (1, 1.1, 1.2, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256)
        shown = [step for step in steps if step <= edges[-1]]
        shown = [s for s in shown if s == 1 or math.log(s) / math.log(edges[-1]) > 0.06]
        axes.xaxis.set_ticks(shown, labels=[f"{step:g}×" for step in shown])
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_tick_params(which="minor", length=0)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(visible=True, axis="y", linewidth=0.6)
        axes.set_axisbelow(True)
        return _svg(figure, "Gain over the cost model")


def _figure(height: float) -> Any:
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    FigureCanvasSVG(figure)
    return figure


def _svg(figure: Any, title: str) -> str:
    """An element to put into a page, in the page's colours."""
    content = io.StringIO()
    figure.savefig(content, format="svg", dpi=160, metadata={"Date": None})
    text = content.getvalue()
    text = text[text.index("<svg") :]
    for color, variable in _VARIABLES.items():
        text = text.replace(color, variable)
    # The page sets width and height.
    text = re.sub(r' (width|height)="[\d.]+pt"', "", text, count=2)
    return text.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)


def _short(count: int) -> str:
    """A number of multiply-adds."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= size:
            return f"{_digits(count / size)} {unit}"
    return str(count)


def _digits(value: float) -> str:
    """Three digits that count."""
    return f"{value:.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f}"
