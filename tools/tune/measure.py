"""``tf-tvm-ops measure``: candidates that another machine compiled, on this one."""

from __future__ import annotations

from pathlib import Path

import click

from tf_tvm_ops.kernels.tuning import detached
from tf_tvm_ops.kernels.tuning.measurer import MeasureError
from tf_tvm_ops.kernels.tuning.record import RecordError
from tf_tvm_ops.tools.progress import BadInput, progress


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help=f"File to write, or to go on with. Default: {detached.RESULTS} in the bundle.",
)
def measure(bundle: Path, out: Path | None) -> None:
    """Check and time the kernels of BUNDLE, a folder made by tune --emit.

    Where this package is not installed, python run.py in the folder does the same.
    """
    results = out or bundle / detached.RESULTS
    try:
        with progress() as report:
            made = detached.measure(bundle, results, report=report)
    except (detached.DamagedBundleError, RecordError, MeasureError) as error:
        raise BadInput(str(error)) from error
    click.echo(detached.summary(made, results))
