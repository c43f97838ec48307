"""An analysis as a table for people and as CSV for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from tf_tvm_ops.kernels.cuda.cost import LIMITS
from tf_tvm_ops.tools.analyze.model import VENDOR_TILES, Analysis, Row
from tf_tvm_ops.tools.files import publish

CAVEAT = "predicted, not measured"


def title(analysis: Analysis) -> str:
    """What was analysed."""
    return f"{analysis.target} on {analysis.gpu.name}, {analysis.batch} matrices: {CAVEAT}"


def print_tables(console: Console, analyses: Sequence[Analysis]) -> None:
    """A table for each image, and how to read it."""
    for analysis in analyses:
        console.print(_table(analysis))
        if analysis.generic:
            console.print(
                f"{analysis.generic} generic kernels of {analysis.target} are left out: their work "
                "depends on the call."
            )
    console.print(
        "×run: operations executed for each one needed, padding included; ×64x64, ×128x64: the "
        "same for a library that pads M and N to such tiles, as cuBLAS does. ×moved: bytes that "
        "blocks ask for, for each byte needed. F/B: operations for each byte, both needed. occ.: "
        "warps of a multiprocessor of those it could run. Operands are in memory, each matrix has "
        "its own, and there is no addend; what the launch costs is not included.",
        highlight=False,
    )
    console.print(f"Times are {CAVEAT}: data sheets and the model of kernels/cuda/cost.py.")


def _table(analysis: Analysis) -> Table:
    table = Table(title=title(analysis), box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("problem", overflow="fold")
    table.add_column("rule", no_wrap=True)
    vendor = [f"×{rows}x{columns}" for rows, columns in VENDOR_TILES]
    for name in ("MFLOP", "×run", *vendor, "MB", "×moved", "F/B", "occ.", "µs", "TFLOP/s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("limit", no_wrap=True)
    for row in analysis.rows:
        needed = row.flops_needed
        table.add_row(
            _brief(row),
            row.rule.removeprefix("cuda_"),
            _digits(needed / 1e6),
            f"{row.flops_executed / needed:.2f}",
            *(_digits(row.vendor_flops(*tile) / needed) for tile in VENDOR_TILES),
            _digits(row.bytes_needed / 1e6),
            f"{row.bytes_moved / row.bytes_needed:.2f}",
            _digits(row.intensity),
            f"{row.occupancy:.0%}",
            _digits(row.bounds.time / 1e3),
            _digits(row.tflops),
            row.bounds.limit,
        )
    return table


def _brief(row: Row) -> str:
    problem = row.problem
    dtype = problem.dtype.replace("bfloat", "bf").replace("float", "f")
    m, n, k = problem.extents()
    return f"{dtype} {m}x{n}x{k} {problem.lhs}{problem.rhs}"


def _digits(value: float) -> str:
    """Three digits that count."""
    return f"{value:.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f}"


def columns(row: Row) -> dict[str, str | int | float]:
    """A kernel's line of the CSV file, by the names of its columns."""
    problem, bounds = row.problem, row.bounds
    m, n, k = problem.extents()
    return {
        "target": row.target,
        "gpu": row.gpu.name,
        "symbol": row.kernel.symbol,
        "rule": row.rule,
        "dtype": problem.dtype,
        "m": m,
        "n": n,
        "k": k,
        "lhs": problem.lhs,
        "rhs": problem.rhs,
        "batch": row.batch,
        "flops_needed": row.flops_needed,
        "flops_executed": row.flops_executed,
        **{f"flops_tiles_{a}x{b}": row.vendor_flops(a, b) for a, b in VENDOR_TILES},
        "bytes_needed": row.bytes_needed,
        "bytes_moved": row.bytes_moved,
        "flops_per_byte": row.intensity,
        "blocks": row.blocks,
        "threads": row.work.threads,
        "registers": row.registers,
        "shared_bytes": row.shared_bytes,
        "blocks_per_multiprocessor": row.resident_blocks,
        "occupancy": row.occupancy,
        "waves": row.waves,
        **{f"{limit}_us": bounds.nanoseconds(limit) / 1e3 for limit in LIMITS},
        "predicted_us": bounds.time / 1e3,
        "predicted_tflops": row.tflops,
        "limit": bounds.limit,
    }


def write_csv(path: Path, rows: Iterable[Row]) -> None:
    """A line for each kernel, of which there is at least one, below the names of the columns.

    Raises
    ------
    ValueError
        If the file cannot be written.
    """
    lines = [columns(row) for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    publish(path, text.getvalue().encode())
