"""``tf-tvm-ops inspect``."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.table import Table

from tf_tvm_ops.kernels import manifest
from tf_tvm_ops.tools.console import standard_output

_CHECKED = {manifest.NATIVE: "by running them", manifest.EMULATED: "by emulation"}


@click.command()
@click.argument("pack", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
def inspect(pack: Path, as_json: bool) -> None:
    """List the kernels of PACK, a folder that `tf-tvm-ops generate` wrote."""
    try:
        found = manifest.load(pack)
    except manifest.ManifestError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        kernels = [
            {
                "target": image.target,
                "file": image.file,
                "verified": image.verified,
                **kernel.to_json(),
            }
            for image in found.images
            for kernel in image.kernels
        ]
        document = {"abi": found.abi, "made_with": dict(found.made_with), "kernels": kernels}
        click.echo(json.dumps(document, indent=1))
        return
    console = standard_output()
    table = Table(title=str(pack))
    for column in ("target", "problem", "rule", "symbol"):
        table.add_column(column, overflow="fold")
    for image in found.images:
        for kernel in image.kernels:
            rule = str(kernel.config.get("rule", ""))
            table.add_row(image.target, str(kernel.problem), rule, kernel.symbol)
        table.add_section()
    console.print(table)
    for image in found.images:
        console.print(
            f"{image.target}: {len(image.kernels)} kernels, {image.bytes / 1024:.0f} KiB in "
            f"{image.file}, checked {_CHECKED.get(image.verified, image.verified)}"
        )
    console.print("made with " + ", ".join(f"{k} {v}" for k, v in found.made_with.items()))
