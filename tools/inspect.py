"""``tf-tvm-ops inspect``."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.table import Table

from tf_tvm_ops.kernels import manifest
from tf_tvm_ops.tools import show
from tf_tvm_ops.tools.console import standard_output
from tf_tvm_ops.tools.decisions import print_decisions

_FILE = click.Path(dir_okay=False, path_type=Path)
_CHECKED = {manifest.NATIVE: "by running them", manifest.EMULATED: "by emulation"}


@click.command()
@click.argument("pack", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("kernel", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
@click.option(
    "--show",
    "form",
    type=click.Choice(show.FORMS),
    default="tir",
    show_default=True,
    help="Which code of KERNEL: TensorIR, CUDA C++ or PTX (GPUs), assembly (CPUs).",
)
@click.option("--target", help="That of KERNEL. Default: the first that has it.")
@click.option(
    "--decisions",
    is_flag=True,
    help="What serves each product of a tuned pack, kernel or stock, and what was measured.",
)
@click.option(
    "--report", type=_FILE, help="Write the HTML file that `tune --report` writes, from --records."
)
@click.option(
    "--records",
    type=_FILE,
    help="Measurements that the pack was tuned by. Default: in the user's cache folder.",
)
@click.option(
    "--peer", type=_FILE, help="For --report: what `bench --peer libxsmm --out` wrote of PACK."
)
def inspect(
    pack: Path,
    kernel: str | None,
    as_json: bool,
    form: str,
    target: str | None,
    decisions: bool,
    report: Path | None,
    records: Path | None,
    peer: Path | None,
) -> None:
    """List the kernels of PACK, a folder that `tf-tvm-ops generate` or `tune` wrote.

    Or print the code of one of them, KERNEL, by its symbol.
    """
    try:
        found = manifest.load(pack)
        if kernel is not None:
            click.echo(_code(found, kernel, target, form))
            return
        if decisions:
            print_decisions(standard_output(), found)
        if report is not None:
            _report(found, report, records, peer)
        if decisions or report is not None:
            return
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        kernels = [
            {
                "target": image.target,
                "file": image.file,
                "verified": image.verified,
                **entry.to_json(),
            }
            for image in found.images
            for entry in image.kernels
        ]
        document = {"abi": found.abi, "made_with": dict(found.made_with), "kernels": kernels}
        click.echo(json.dumps(document, indent=1))
        return
    console = standard_output()
    table = Table(title=str(pack))
    for column in ("target", "problem", "rule", "symbol"):
        table.add_column(column, overflow="fold")
    for image in found.images:
        for entry in image.kernels:
            rule = str(entry.config.get("rule", ""))
            table.add_row(image.target, str(entry.problem), rule, entry.symbol)
        table.add_section()
    console.print(table)
    for image in found.images:
        console.print(
            f"{image.target}: {len(image.kernels)} kernels, {image.bytes / 1024:.0f} KiB in "
            f"{image.file}, checked {_CHECKED.get(image.verified, image.verified)}"
        )
    console.print("made with " + ", ".join(f"{k} {v}" for k, v in found.made_with.items()))


def _code(found: manifest.Manifest, symbol: str, target: str | None, form: str) -> str:
    try:
        return show.code(*show.find(found.images, symbol, target), form)
    except ImportError as error:
        raise click.ClickException(
            f"code is made by {error.name or error}: pip install 'tf-tvm-ops[generate]'"
        ) from error


def _report(found: manifest.Manifest, path: Path, records: Path | None, peer: Path | None) -> None:
    try:
        from tf_tvm_ops.tools.tune import kept, report
    except ImportError as error:
        raise click.ClickException(
            f"reports need {error.name or error}: pip install 'tf-tvm-ops[generate,plots]'"
        ) from error
    report.check(path)
    ratios = report.read_peer(peer) if peer is not None else None
    measured, here = kept.found(found, records or kept.default_records())
    report.write(path, measured, found, here, ratios)
    click.echo(f"report: {path}")
