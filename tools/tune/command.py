"""``tf-tvm-ops tune``."""

from __future__ import annotations

import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click

from tf_tvm_ops.tools.progress import BadInput, progress

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


class Duration(click.ParamType):  # type: ignore[type-arg]
    """Seconds, written as 90, 90s, 10m or 1h."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number of seconds."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", str(value))
        if match is None or float(match[1]) == 0:
            self.fail(f"{value!r}: expected a time such as 90s, 10m or 1h", param, ctx)
        return float(match[1]) * _UNITS[match[2]]


@dataclass(frozen=True)
class Options:
    """What the command line asks for; see its help."""

    shapes: tuple[Path, ...]
    targets: tuple[str, ...]
    out: Path | None
    budget: float | None
    trials: int
    strategy: str
    cache: str
    records: Path
    objects: Path
    threads: int
    jobs: int | None
    gate: bool
    report: Path | None
    apply: tuple[Path, ...]
    tracker: str
    key: str


@click.command()
@click.option(
    "--shapes",
    required=True,
    multiple=True,
    type=click.Path(path_type=Path),
    help="YAML shape table; give it several times for several tables.",
)
@click.option(
    "--target",
    "targets",
    multiple=True,
    help="What to tune for, as for generate. Default: every CPU target that this machine can run.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the pack to write.")
@click.option(
    "--budget",
    type=Duration(),
    help="Time to aim at for all of it, as 90s, 10m or 1h: the search ends in time for the gate, "
    "which is always finished.",
)
@click.option(
    "--trials",
    type=click.IntRange(1),
    default=24,
    show_default=True,
    help="Candidates measured for each problem, at most.",
)
@click.option(
    "--strategy",
    type=click.Choice(["guided", "brute-force", "evolutionary"]),
    default="guided",
    show_default=True,
    help="What is measured next: what a cost model corrected by measurements expects to win, "
    "everything in turn, or what MetaSchedule's evolutionary search breeds.",
)
@click.option(
    "--cache",
    type=click.Choice(["hot", "cold"]),
    default="hot",
    show_default=True,
    help="Whether the operands are in the processor's caches while candidates compete.",
)
@click.option(
    "--records",
    type=click.Path(path_type=Path),
    help="File of measurements, reused and added to. Default: in the user's cache folder.",
)
@click.option(
    "--objects",
    type=click.Path(path_type=Path),
    help="Folder of compiled kernels that later runs reuse. Default: in the user's cache folder.",
)
@click.option(
    "--threads",
    type=click.IntRange(1),
    help="Threads that TensorFlow uses against the kernels. Default: all cores.",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Processes that compile. Default: all cores."
)
@click.option(
    "--gate/--no-gate",
    default=True,
    show_default=True,
    help="Measure stock TensorFlow too, and let the pack's kernels serve only where they won.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    help="HTML file with what was measured: spaces, winners, stock.",
)
@click.option(
    "--tracker",
    default="",
    help="HOST:PORT of a tracker of TVM whose machines measure; needs the extra 'rpc'.",
)
@click.option("--key", default="", help="What those machines are called at the tracker.")
@click.option(
    "--emit",
    type=click.Path(path_type=Path),
    help="Write a folder of candidates instead of a pack, to be measured on another machine.",
)
@click.option(
    "--apply",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Measure nothing: take these results of another machine; may be given several times.",
)
def tune(
    records: Path | None,
    objects: Path | None,
    threads: int | None,
    emit: Path | None,
    **given: object,
) -> None:
    """Search for the fastest kernel of every product in shape tables, and prove it against stock.

    Candidates are checked against float64 before they are timed. Measurements are kept: a run that
    was interrupted, or that is given more time, goes on where the last one ended.
    """
    try:
        import platformdirs

        from tf_tvm_ops.kernels.tuning.machine import cores
        from tf_tvm_ops.tools.tune import report as html
        from tf_tvm_ops.tools.tune import session
    except ImportError as error:
        raise BadInput(
            f"tuning needs {error.name or error}: pip install 'tf-tvm-ops[cpu,generate]'"
        ) from error
    home = Path(platformdirs.user_cache_dir("tf-tvm-ops"))
    options = Options(
        records=records or home / "tuning.jsonl",
        objects=objects or home / "objects",
        threads=threads or len(cores()),
        **given,  # type: ignore[arg-type]
    )
    _check_usage(options, emit)
    start = time.monotonic()
    try:
        if emit is not None:
            with progress() as report:
                click.echo(session.emit(options, emit, report))
            return
        if options.report is not None:
            html.check(options.report)
        with progress() as report, tempfile.TemporaryDirectory(prefix="tf-tvm-ops-") as folder:
            summary = session.run(options, Path(folder), report)
    except session.ERRORS as error:
        raise BadInput(str(error)) from error
    for line in summary.lines():
        click.echo(line)
    click.echo(f"{options.out}: {summary.pack_line()}, {time.monotonic() - start:.1f} s")
    if options.report is not None:
        try:
            here = () if options.tracker or options.apply else tuple(summary.found)
            html.write(options.report, summary.found, summary.pack, here)
        except ValueError as error:
            raise BadInput(str(error)) from error
        click.echo(f"report: {options.report}")


def _check_usage(options: Options, emit: Path | None) -> None:
    """Refuse options that mean nothing together."""
    ways = [
        name
        for name, given in (
            ("--emit", emit),
            ("--apply", options.apply),
            ("--tracker", options.tracker),
        )
        if given
    ]
    if len(ways) > 1:
        raise click.UsageError(f"{' and '.join(ways)} are different ways to measure: give one")
    if emit is None and options.out is None:
        raise click.UsageError("--out is missing: the folder of the pack to write")
    if emit is not None and options.out is not None:
        raise click.UsageError("--emit writes no pack: leave --out for --apply")
    if emit is not None and options.report is not None:
        raise click.UsageError("--emit measures nothing to report: leave --report for --apply")
    if bool(options.tracker) != bool(options.key):
        raise click.UsageError("--tracker and --key go together")
