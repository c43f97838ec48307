"""Roofline plots of an analysis. Needs matplotlib.

After Williams, Waterman and Patterson, "Roofline: An Insightful Visual Performance Model for
Multicore Architectures" (2009).
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tf_tvm_ops.tools.analyze.model import Analysis
from tf_tvm_ops.tools.analyze.report import title

# By what binds a kernel; told apart without colours, too. Okabe and Ito's palette.
_MARKS = {
    "memory": ("o", "#0072B2"),
    "multiply": ("^", "#D55E00"),
    "load": ("s", "#009E73"),
    "latency": ("x", "#CC79A7"),
}
_INCHES = (9.0, 5.5)
_DPI = 120


def png(analyses: Sequence[Analysis]) -> bytes:
    """A plot for each image, one below the other, as a PNG file."""
    width, height = _INCHES
    figure = Figure(figsize=(width, height * len(analyses)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(analyses), squeeze=False)
    for axes, analysis in zip(grid[:, 0], analyses):
        _roofline(axes, analysis)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=_DPI)
    return content.getvalue()


def _roofline(axes: Any, analysis: Analysis) -> None:
    gpu, rows = analysis.gpu, analysis.rows
    slope = gpu.gigabytes_per_second / 1e3  # TFLOP/s for each FLOP a byte
    roofs = {"float32": gpu.float32_tflops}
    if any(row.problem.dtype == "float64" for row in rows):
        roofs["float64"] = gpu.float64_tflops
    if any(row.work.mma_instructions for row in rows):
        roofs["tensor cores"] = gpu.tensor_tflops
        if gpu.mma_share < 1:
            roofs["mma.sync"] = gpu.tensor_tflops * gpu.mma_share
    ridges = [roof / slope for roof in roofs.values()]
    found = [row.intensity for row in rows]
    left, right = min([*found, *ridges]) / 2, max([*found, *ridges]) * 2
    for name, roof in roofs.items():
        axes.plot([left, roof / slope, right], [left * slope, roof, roof], color="0.4", zorder=1)
        axes.annotate(
            f"{name}: {roof:.3g} TFLOP/s", (right, roof), ha="right", va="bottom", color="0.3"
        )
    axes.annotate(
        f"memory: {gpu.gigabytes_per_second:g} GB/s",
        (left, left * slope),
        xytext=(14, 0),
        textcoords="offset points",
        va="center",
        color="0.3",
    )
    for limit, (marker, color) in _MARKS.items():
        points = [(row.intensity, row.tflops) for row in rows if row.bounds.limit == limit]
        if points:
            axes.scatter(*zip(*points), marker=marker, color=color, label=f"{limit} binds")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="arithmetic intensity: FLOP needed for each byte needed",
        ylabel="TFLOP/s needed, in the predicted time",
        title=title(analysis),
    )
    axes.grid(visible=True, which="both", alpha=0.2)
    if rows:
        axes.legend(loc="lower right")
