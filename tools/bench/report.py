"""Turning measurements into a table for people and a file for programs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tf_tvm_ops.tools.bench.cases import Case
from tf_tvm_ops.tools.bench.machine import Machine
from tf_tvm_ops.tools.bench.runner import Measurement


@dataclass(frozen=True)
class Row:
    """What was measured of one product at one setting.

    Attributes
    ----------
    onednn, eigen, ours
        Stock with oneDNN on, stock with it off, and ours with it on, as TensorFlow ships.
    """

    case: Case
    onednn: Measurement
    eigen: Measurement
    ours: Measurement

    @property
    def ratios(self) -> tuple[float, float, float]:
        """How many times faster ours is than oneDNN, Eigen, and the better of them."""
        onednn = self.onednn.median_us / self.ours.median_us
        eigen = self.eigen.median_us / self.ours.median_us
        return onednn, eigen, min(onednn, eigen)


def rows(measurements: Iterable[Measurement], threads: int, cache: str) -> list[Row]:
    """The rows of one setting, in the order in which the products were measured."""
    found: dict[Case, dict[str, Measurement]] = {}
    for m in measurements:
        if m.threads == threads and m.cache == cache and (m.onednn or m.implementation != "ours"):
            found.setdefault(m.case, {})[m.implementation] = m
    return [
        Row(case, by["stock_onednn"], by["stock_eigen"], by["ours"]) for case, by in found.items()
    ]


def geometric_mean(values: Sequence[float]) -> float:
    """NaN if there are none."""
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else math.nan


def print_tables(
    console: Console,
    machine: Machine,
    measurements: Sequence[Measurement],
    threads: Sequence[int],
    caches: Sequence[str],
) -> None:
    """A table for each setting, and the machine that they were measured on."""
    for count in threads:
        for cache in caches:
            console.print(_table(rows(measurements, count, cache), count, cache))
    console.print(
        "Microseconds for one op inside a graph: median ± half the interquartile range. "
        "×: how many times faster ours is."
    )
    console.print(f"Measured on {machine}.", soft_wrap=True)


def _table(found: Sequence[Row], threads: int, cache: str) -> Table:
    inputs = "in cache" if cache == "hot" else "not in cache"
    table = Table(title=f"{threads} thread{'s' if threads > 1 else ''}, inputs {inputs}")
    table.add_column("site", overflow="fold", max_width=36)
    table.add_column("product")
    table.add_column("served by", overflow="fold", max_width=30)
    for name in ("stock oneDNN", "stock Eigen", "ours", "× oneDNN", "× Eigen", "× best"):
        table.add_column(name, justify="right")
    for row in found:
        times = (_time(m) for m in (row.onednn, row.eigen, row.ours))
        table.add_row(
            row.case.site,
            str(row.case),
            brief(row.ours.served_by),
            *times,
            *(_ratio(r) for r in row.ratios),
        )
    means = [geometric_mean([row.ratios[i] for row in found]) for i in range(3)]
    table.add_section()
    table.add_row(f"geometric mean of {len(found)}", *[""] * 5, *(_ratio(m) for m in means))
    return table


def brief(symbol: str) -> str:
    """A symbol without the problem that it begins with, which the table names already."""
    return re.sub(r"^bmm_f32_(m\d+_n\d+_k\d+_l[km]_r[nk]_)?", "", symbol)


def _time(m: Measurement) -> str:
    digits = 0 if m.median_us >= 100 else 1 if m.median_us >= 10 else 2
    return f"{m.median_us:.{digits}f} ±{m.spread_us / 2:.{digits}f}"


def _ratio(value: float) -> str:
    # Within a twentieth of stock is what repeated runs differ by.
    style = "green" if value >= 1.05 else "red" if value < 0.95 else ""
    return f"[{style}]{value:.2f}[/]" if style else f"{value:.2f}"


def to_json(machine: Machine, measurements: Iterable[Measurement]) -> dict[str, Any]:
    """All measurements, with geometric means for each setting."""
    all_measurements = list(measurements)
    settings = sorted({(m.threads, m.cache) for m in all_measurements})
    means = []
    for threads, cache in settings:
        ratios = [row.ratios for row in rows(all_measurements, threads, cache)]
        names = ("stock_onednn", "stock_eigen", "best_stock")
        speedup = {name: geometric_mean([r[i] for r in ratios]) for i, name in enumerate(names)}
        means.append({"threads": threads, "cache": cache, "rows": len(ratios), "speedup": speedup})
    return {
        "schema": 1,
        "machine": asdict(machine),
        "geometric_means": means,
        "measurements": [asdict(m) for m in all_measurements],
    }


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write beside the final place, then rename: a file that exists is whole."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)
