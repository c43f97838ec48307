"""``tf-tvm-ops analyze``."""

from __future__ import annotations

from pathlib import Path

import click

from tf_tvm_ops.kernels import manifest
from tf_tvm_ops.kernels.cuda.gpus import GPUS, parse_gpu
from tf_tvm_ops.tools.analyze import report
from tf_tvm_ops.tools.analyze.model import Analysis
from tf_tvm_ops.tools.analyze.model import analyze as run
from tf_tvm_ops.tools.console import standard_output
from tf_tvm_ops.tools.files import publish

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("pack", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--gpu",
    help=f"Where kernels would run: {', '.join(GPUS)}. Default: a common GPU of each image's "
    "architecture.",
)
@click.option("--target", help="The image to analyse, cuda:sm_90 say. Default: all for GPUs.")
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=512,
    show_default=True,
    help="Number of matrices: 64 sentences by 8 heads, say. A kernel serves any.",
)
@click.option("--csv", "csv_file", type=_FILE, help="Also write all figures to this file.")
@click.option("--plot", "plot_file", type=_FILE, help="Also draw a roofline to this PNG file.")
def analyze(
    pack: Path,
    gpu: str | None,
    target: str | None,
    batch: int,
    csv_file: Path | None,
    plot_file: Path | None,
) -> None:
    """Predict what bounds each GPU kernel of PACK, and how long it takes, without a GPU.

    From the manifest and data sheets: operations and bytes needed, and executed and moved;
    occupancy; time; the limit that binds. Beside it, what tiles of a library like cuBLAS would
    execute.
    """
    try:
        found = run(
            manifest.load(pack), batch, gpu=None if gpu is None else parse_gpu(gpu), target=target
        )
        if plot_file:
            publish(plot_file, _plot(found, plot_file))
        if csv_file:
            report.write_csv(csv_file, (row for analysis in found for row in analysis.rows))
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    report.print_tables(standard_output(), found)


def _plot(found: list[Analysis], path: Path) -> bytes:
    if path.suffix.lower() != ".png":
        raise click.ClickException(f"{path}: plots are PNG files; expected a name ending in .png")
    try:
        from tf_tvm_ops.tools.analyze import plot
    except ImportError as error:
        raise click.ClickException(
            f"plots are drawn by {error.name or error}: pip install 'tf-tvm-ops[plots]'"
        ) from error
    return plot.png(found)
