"""``tf-tvm-ops generate``: from shape tables to a pack."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from tf_tvm_ops.tools.progress import BadInput, progress


@click.command()
@click.option(
    "--shapes",
    "shape_files",
    required=True,
    multiple=True,
    type=click.Path(path_type=Path),
    help="YAML shape table; give it several times for several tables.",
)
@click.option(
    "--target",
    "targets",
    multiple=True,
    help="cpu:x86-64-v3, cpu:x86-64-v4, cpu:x86-64-v4-bf16, cpu:x86-64-v4-amx-bf16, "
    "cpu:x86-64-v4-amx-fp16, cuda:sm_70, 75, 80, 86, 89, 90, 100, 120, cuda:compute_80 (PTX); "
    "several times for several images. Default: every CPU target that this machine can run.",
)
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), help="Folder of the pack to write."
)
@click.option(
    "--cache",
    type=click.Path(path_type=Path),
    help="Folder of compiled kernels that later runs reuse. Default: in the user's cache folder.",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Processes that compile. Default: all cores."
)
@click.option(
    "--skip-unverifiable",
    is_flag=True,
    help="Leave out targets that this machine can neither run nor emulate, and so not check, "
    "instead of refusing.",
)
@click.option(
    "--all-generic",
    is_flag=True,
    help="Generic kernels for every dtype, not only for those of the tables.",
)
def generate(
    shape_files: tuple[Path, ...],
    targets: tuple[str, ...],
    out: Path,
    cache: Path | None,
    jobs: int | None,
    skip_unverifiable: bool,
    all_generic: bool,
) -> None:
    """Compile a kernel for every product in shape tables, check each, write a pack.

    A pack appears whole or not at all. Kernels compiled before are taken from the cache.
    """
    try:
        import platformdirs

        from tf_tvm_ops.kernels import targets as known
        from tf_tvm_ops.kernels.build import BuildError
        from tf_tvm_ops.kernels.cuda.packages import CompilerError
        from tf_tvm_ops.kernels.generate import GenerateError
        from tf_tvm_ops.kernels.generate import generate as make
    except ImportError as error:
        raise BadInput(
            f"generating needs {error.name or error}: pip install 'tf-tvm-ops[generate]'"
        ) from error
    if cache is None:
        cache = Path(platformdirs.user_cache_dir("tf-tvm-ops"), "objects")
    names = targets or tuple(n for n, t in known.TARGETS.items() if t.runs_here())
    start = time.monotonic()
    try:
        with progress() as report:
            summary = make(
                shape_files,
                names,
                out,
                cache,
                skip_unverifiable=skip_unverifiable,
                all_generic=all_generic,
                jobs=jobs,
                report=report,
            )
    except (ValueError, OSError, BuildError, CompilerError, GenerateError) as error:
        raise BadInput(str(error)) from error
    for target in summary.skipped:
        click.echo(f"skipped {target}: this machine cannot run it, so it cannot be checked")
    for target in summary.emulated:
        click.echo(f"{target}: this machine cannot run it; its kernels were checked by emulation")
    for line in summary.rejected:
        click.echo(f"left out {line}", err=True)
    counts = ", ".join(f"{count} for {target}" for target, count in summary.kernels.items())
    click.echo(
        f"{summary.pack}: kernels {counts}, each checked against float64; "
        f"{summary.compiled} compiled, {summary.reused} reused, "
        f"{time.monotonic() - start:.1f} s"
    )
    if summary.rejected:
        sys.exit(1)
