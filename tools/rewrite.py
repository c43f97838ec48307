"""``tf-tvm-ops rewrite``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import click
from rich.table import Table

from tf_tvm_ops.tools.console import standard_output


@click.command()
@click.argument("src", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("dst", type=click.Path(path_type=Path))
@click.option("--report", is_flag=True, help="Say what became of each product, and why.")
@click.option("--revert", is_flag=True, help="Put TensorFlow's ops in the place of these instead.")
def rewrite(src: Path, dst: Path, report: bool, revert: bool) -> None:
    """Write DST, the SavedModel SRC with its products as ops of tf_tvm_ops.

    Signatures, variables and assets stay as they are. To serve DST, load the op library first.
    Models need not be rewritten to be faster: the library does it when they are loaded.
    """
    # TensorFlow writes notices to standard error while it is imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from tf_tvm_ops.rewrite import rewrite_saved_model

    try:
        done = rewrite_saved_model(src, dst, revert=revert)
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    console = standard_output()
    if report:
        table = Table(title=f"{src} → {dst}")
        for column in ("graph", "product", "became", "why not more"):
            table.add_column(column, overflow="fold")
        for outcome in done:
            table.add_row(
                outcome.graph,
                f"{outcome.product_op} {outcome.product}",
                " + ".join(filter(None, [outcome.op, *outcome.parts])) or "left alone",
                f"{outcome.reason}: {outcome.detail}" if outcome.reason else "",
            )
        console.print(table)
    verb = "reverted" if revert else "rewritten"
    console.print(
        f"{len(done)} products, {len(done.rewritten)} {verb}{_reasons(done.left_alone())}"
    )


def _reasons(left_alone: dict[str, int]) -> str:
    counts: Iterable[str] = (f"{count} {reason}" for reason, count in left_alone.items())
    text = ", ".join(counts)
    return f"; left alone: {text}" if text else ""
