"""``tf-tvm-ops doctor``: what works here and what does not."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import click
from rich.table import Table

import tf_tvm_ops
from tf_tvm_ops import config, library
from tf_tvm_ops.tools.console import standard_output


@dataclass
class _Findings:
    """What was found, and the problems among it, in words for the user."""

    facts: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def fact(self, name: str, value: str) -> None:
        self.facts.append((name, value))

    def problem(self, text: str) -> None:
        self.problems.append(" ".join(text.split()))


@click.command()
def doctor() -> None:
    """Say what works here and what does not.

    Prints versions, CPU targets, packs and the environment variables in force; then one line for
    each problem. The exit code is 1 if there is one.
    """
    found = _Findings()
    checks: tuple[Callable[[_Findings], None], ...] = (
        _versions,
        _op_library,
        _packs,
    )
    # First, since the values decide what the others see.
    variables = _environment(found)
    for check in checks:
        check(found)
    console = standard_output()
    table = Table(title="tf_tvm_ops", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in found.facts:
        table.add_row(name, value)
    console.print(table)
    console.print(variables)
    for problem in found.problems:
        console.print(f"[red]problem:[/] {problem}", soft_wrap=True, highlight=False)
    if found.problems:
        sys.exit(1)
    console.print("[green]No problem found.[/]")


def _environment(found: _Findings) -> Table:
    table = Table(title="Environment variables")
    for column in ("name", "value", "meaning"):
        table.add_column(column, overflow="fold")
    for variable in config.ALL:
        try:
            value = variable.get()
        except ValueError as error:
            found.problem(str(error))
            value = os.environ.get(variable.name, "")
        origin = "" if os.environ.get(variable.name) else " (default)"
        table.add_row(variable.name, f"{value}{origin}".strip(), variable.meaning)
    return table


def _versions(found: _Findings) -> None:
    found.fact("tf_tvm_ops", tf_tvm_ops.__version__)
    found.fact("built for TensorFlow", library.built_for_tensorflow() or "built without")
    found.fact("TensorFlow", library.installed_tensorflow() or "not installed")
    for package in ("apache-tvm-ffi", "apache-tvm"):
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            version = "not installed"
        note = " (needed by `generate` only)" if package == "apache-tvm" else ""
        found.fact(package, version + note)


def _op_library(found: _Findings) -> None:
    """Load it and compute something with it."""
    try:
        # TensorFlow writes notices to standard error while it is imported.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        tf_tvm_ops.load()
        product = tf_tvm_ops.batch_matmul([[1.0, 2.0]], [[3.0], [4.0]]).numpy()
    except Exception as error:
        found.fact("op library", "does not load")
        found.problem(f"the op library does not load: {error}")
        return
    found.fact("op library", library.library_path())
    if product.tolist() != [[11.0]]:
        found.problem(f"[1, 2]·[3, 4] gave {product.tolist()} where 11 was expected")


def _packs(found: _Findings) -> None:
    try:
        targets = library.native().supported_cpu_targets()
    except ImportError as error:
        found.problem(f"the native module cannot be imported: {error}; install tf_tvm_ops again")
        return
    found.fact("CPU targets", ", ".join(targets) or "none: stock TensorFlow serves everything")
    loaded = tf_tvm_ops.packs.loaded()
    for pack in loaded:
        found.fact("pack", f"{pack.path}: {pack.kernels} kernels for {', '.join(pack.targets)}")
        for ignored in pack.ignored:
            found.fact("image not used", ignored)
    paths = {os.path.realpath(pack.path) for pack in loaded}
    for path in filter(None, os.environ.get(config.PACKS.name, "").split(":")):
        if os.path.realpath(path) not in paths:
            found.problem(f"the pack {path} of {config.PACKS.name} was not loaded; see above")
    if not loaded and targets:
        found.problem("no pack is loaded; generate one with `tf-tvm-ops generate`")
    _gpus(found, any(target.startswith("cuda:") for pack in loaded for target in pack.targets))


def _gpus(found: _Findings, wanted: bool) -> None:
    """Whether kernels for GPUs can be used, a problem only where a pack has some."""
    native = library.native()
    if not native.has_cuda_driver():
        found.fact("kernels for GPUs", "none: there is no NVIDIA driver (libcuda.so.1)")
        return
    missing = native.cuda_problem() if wanted else ""
    if missing:
        found.fact("kernels for GPUs", "not used")
        found.problem(f"kernels for GPUs are not used: {missing}")
        return
    found.fact("kernels for GPUs", "usable" if wanted else "none in the packs")
