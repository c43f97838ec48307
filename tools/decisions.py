"""What serves each product of a tuned pack, and the measurements that say so."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from tf_tvm_ops.kernels.manifest import Duel, ImageEntry, KernelEntry, Manifest, Timing
from tf_tvm_ops.kernels.problem import Problem

KERNEL = "kernel"
STOCK_FASTER = "stock_faster"
"""The dispatcher's word: ``Refusal`` in ``cc/dispatch/product.h``."""


def decision(kernel: KernelEntry, timing: Timing, *, onednn: bool) -> str:
    """What serves a product of a timing's size and epilogue: ``KERNEL`` or ``STOCK_FASTER``."""
    wins = kernel.expected_to_win(timing.matrices, timing.epilogue, onednn=onednn)
    return KERNEL if wins else STOCK_FASTER


def brief(problem: Problem) -> str:
    """A problem in few letters: f32 17x17x64 kn, say."""
    dtype = problem.dtype.replace("bfloat", "bf").replace("float", "f")
    extents = "generic" if problem.is_generic else "x".join(map(str, problem.extents()))
    return f"{dtype} {extents} {problem.lhs}{problem.rhs}"


def microseconds(value: float) -> str:
    """As many digits as count."""
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


def print_decisions(console: Console, pack: Manifest) -> None:
    """A table for each target that was tuned, and how to read it.

    Raises
    ------
    ValueError
        If none was.
    """
    tuned = [image for image in pack.images if any(kernel.timings for kernel in image.kernels)]
    if not tuned:
        raise ValueError(
            "no kernel of the pack was measured against stock, so all of them serve; make the pack "
            "with `tf-tvm-ops tune`"
        )
    for image in tuned:
        console.print(_table(image))
        fixed = [kernel for kernel in image.kernels if not kernel.problem.is_generic]
        left = sum(not kernel.timings for kernel in fixed)
        if left:
            console.print(f"Kernels of {image.target} that were not measured, and serve: {left}.")
        modelled = sum(kernel.model is not None for kernel in image.kernels)
        if modelled:
            console.print(
                "For other shapes generic kernels serve where a model, fitted to measurements, "
                f"expects them to be faster than stock: {modelled} have one."
            )
    console.print(
        "Microseconds for an op inside a graph, medians; ±: the noise that a difference has to "
        "exceed. A kernel serves a number of matrices and an epilogue if it won them, or the bare "
        "product, in one cache setting and lost in none, or if stock crashed in one of them. "
        "Decisions differ with oneDNN on and off.",
        highlight=False,
    )


def _table(image: ImageEntry) -> Table:
    # Eleven columns have to fit beside each other.
    table = Table(title=image.target, box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("problem", overflow="fold")
    table.add_column("epilogue", overflow="fold")
    table.add_column("matrices", justify="right", overflow="fold")
    table.add_column("threads", justify="right", overflow="fold")
    table.add_column("cache", overflow="fold")
    for stock in ("oneDNN", "Eigen"):
        table.add_column("ours", justify="right", overflow="fold")
        table.add_column(stock, justify="right", overflow="fold")
        table.add_column("decision", overflow="fold")
    for kernel in image.kernels:
        for timing in kernel.timings:
            table.add_row(
                brief(kernel.problem),
                timing.epilogue,
                str(timing.matrices),
                str(timing.threads),
                timing.cache,
                *_cells(timing.onednn, decision(kernel, timing, onednn=True)),
                *_cells(timing.eigen, decision(kernel, timing, onednn=False)),
            )
    return table


def _cells(duel: Duel | None, word: str) -> tuple[str, str, str]:
    style = "green" if word == KERNEL else "red"
    if duel is None:
        return "–", "failed", f"[{style}]{word}[/]"
    return (
        microseconds(duel.kernel_us),
        f"{microseconds(duel.stock_us)} ±{microseconds(duel.noise_us)}",
        f"[{style}]{word}[/]",
    )
