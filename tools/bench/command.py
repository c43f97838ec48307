"""``tf-tvm-ops bench``."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from tf_tvm_ops.tools.bench import cases, fused, machine, report, runner, xsmm
from tf_tvm_ops.tools.console import standard_output


@click.command()
@click.argument("tables", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--pack",
    "packs",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    help="A pack to load before measuring; may be given several times.",
)
@click.option("--threads", multiple=True, type=click.IntRange(1), default=(1, 2), show_default=True)
@click.option(
    "--cache",
    type=click.Choice(["hot", "cold", "both"]),
    default="both",
    show_default=True,
    help="Whether the inputs are in the processor's caches.",
)
@click.option(
    "--per-site",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Products measured of each site of the tables, spread over its sizes.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.01),
    default=0.5,
    show_default=True,
    help="Time spent on each product at each setting.",
)
@click.option("--repeats", type=click.IntRange(3), default=15, show_default=True)
@click.option(
    "--peer",
    type=click.Choice(["libxsmm"]),
    help="Compare the kernels with another library, on one thread, without TensorFlow.",
)
@click.option(
    "--fused",
    "fused_only",
    is_flag=True,
    help="Measure what scale, addend and transpose add to a product, ours and stock's.",
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Results as JSON.")
def bench(
    tables: tuple[Path, ...],
    packs: tuple[str, ...],
    threads: tuple[int, ...],
    cache: str,
    per_site: int,
    seconds: float,
    repeats: int,
    peer: str | None,
    fused_only: bool,
    out: Path | None,
) -> None:
    """Measure stock TensorFlow and tf_tvm_ops on the products of TABLES.

    Without TABLES, those that come with the package. Every answer is checked against float64
    before it is timed.
    """
    console = standard_output()
    here = machine.describe()
    chosen = cases.select(tables or cases.default_tables(), per_site)
    if fused_only and peer is not None:
        raise click.UsageError("--fused and --peer measure different things: give one of them")
    if peer is not None:
        xsmm.compare(console, here, chosen, packs, out)
        return
    caches = ("hot", "cold") if cache == "both" else (cache,)
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("measuring")

        def update(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        try:
            if fused_only:
                job = runner.make_job(chosen, caches, packs, seconds, repeats)
                fused.compare(console, here, job, threads, out, update)
                return
            measurements = runner.run(
                chosen,
                threads,
                caches,
                packs,
                seconds,
                repeats,
                update,
            )
        except runner.WorkerError as error:
            raise click.ClickException(str(error)) from error
    report.print_tables(console, here, measurements, threads, caches)
    if out is not None:
        report.write_json(out, report.to_json(here, measurements))
