"""``tf-tvm-ops bundle``."""

from __future__ import annotations

from pathlib import Path

import click

from tf_tvm_ops.tools.bench.cases import default_tables
from tf_tvm_ops.tools.gpu_check.bundle import make


@click.command()
@click.argument("pack", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="Folder to write, or an archive, NAME.tar.gz.",
)
@click.option(
    "--shapes",
    "tables",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Shape table whose products are timed; may be given several times. Default: those that "
    "come with the package.",
)
def bundle(pack: Path, out: Path, tables: tuple[Path, ...]) -> None:
    """Pack the GPU kernels of PACK, and what checks and times them, for another machine.

    That machine needs a GPU, Python and NumPy; PyTorch and Triton for a comparison. Run `python
    run.py` there.
    """
    try:
        cases = make(pack, tables or default_tables(), out)
    except (ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error
    size = sum(path.stat().st_size for path in (out.rglob("*") if out.is_dir() else [out]))
    click.echo(f"{out}: {size / 2**20:.1f} MiB, {len(cases)} products to time")
