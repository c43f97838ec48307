"""A run of ``tf-tvm-ops tune``: search, pack, gate, in this order."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tf_tvm_ops.kernels import manifest, publish
from tf_tvm_ops.kernels.build import BuildError
from tf_tvm_ops.kernels.cuda.nvrtc import CompilerError
from tf_tvm_ops.kernels.cuda.targets import is_cuda
from tf_tvm_ops.kernels.generate import GenerateError, generate
from tf_tvm_ops.kernels.manifest import ImageEntry, Manifest
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.shapes import ShapeRow, load_tables
from tf_tvm_ops.kernels.targets import TARGETS, parse_target
from tf_tvm_ops.kernels.tuning.backend import CpuBackend
from tf_tvm_ops.kernels.tuning.local import LocalMeasurer
from tf_tvm_ops.kernels.tuning.measurer import MeasureError
from tf_tvm_ops.kernels.tuning.search import STRATEGIES
from tf_tvm_ops.kernels.tuning.tuner import Found, Limits, Tuner
from tf_tvm_ops.kernels.tuning.workload import workloads
from tf_tvm_ops.tools.bench.runner import WorkerError
from tf_tvm_ops.tools.tune.command import Options
from tf_tvm_ops.tools.tune.fallback import model_fallbacks
from tf_tvm_ops.tools.tune.gate import gate

Report = Callable[[str, int, int], None]

ERRORS = (
    ValueError,
    OSError,
    BuildError,
    CompilerError,
    GenerateError,
    MeasureError,
    WorkerError,
)
"""What a run raises for reasons that its user can do something about."""

_GATE_SECONDS = 0.5
"""Against stock, for a problem: a guess that a budget is divided by."""


@dataclass
class Summary:
    """What a run did.

    Attributes
    ----------
    found
        Of the search, by target.
    pack
        The manifest that was published.
    rejected
        A line for each kernel that did not match the oracle.
    """

    found: dict[str, list[Found]] = field(default_factory=dict)
    pack: Manifest | None = None
    rejected: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """What there is to say of each target."""
        lines = [f"left out {line}" for line in self.rejected]
        for target, found in self.found.items():
            outcomes = [o for f in found for o in f.state.outcomes.values()]
            failed = sum(not outcome.ok for outcome in outcomes)
            lines.append(
                f"{target}: {len(outcomes)} candidates of {len(found)} problems measured, "
                f"{failed} failed"
            )
        return lines

    def pack_line(self) -> str:
        """What the pack holds."""
        assert self.pack is not None
        kernels = [k for image in self.pack.images for k in image.kernels]
        timed = [k for k in kernels if k.timings]
        won = [k for k in timed if all(d.won for t in k.timings for d in (t.onednn, t.eigen))]
        text = f"{len(kernels)} kernels, each checked against float64"
        if timed:
            text += f"; {len(won)} of {len(timed)} measured won against stock in every setting"
        return text


def run(options: Options, folder: Path, report: Report) -> Summary:
    """Tune, make the pack in ``folder``, measure it against stock, and publish it.

    Raises
    ------
    ERRORS
        Before anything is written to the pack. Measurements are kept.
    """
    start = time.monotonic()
    names = options.targets or tuple(n for n, t in TARGETS.items() if t.runs_here())
    rows = load_tables(options.shapes)
    publish.check_writable(options.out)
    tuned = [name for name in dict.fromkeys(names) if _can_tune(name)]
    summary = Summary()
    choices: dict[str, Mapping[Problem, Any]] = {}
    for index, name in enumerate(tuned):
        seconds = _share(options, len(rows), start, len(tuned) - index)
        summary.found[name] = _search(options, name, rows, seconds, report)
        choices[name] = {
            f.state.workload.problem: f.choice for f in summary.found[name] if f.choice is not None
        }
    made = generate(
        options.shapes,
        names,
        folder / "pack",
        options.objects,
        choices=choices,
        jobs=options.jobs,
        report=report,
    )
    summary.rejected = made.rejected
    summary.pack = _gate(options, made.pack, tuned, rows, report)
    files = {image.file: made.pack / image.file for image in summary.pack.images}
    publish.publish(options.out, summary.pack, files)
    return summary


def _can_tune(name: str) -> bool:
    return not is_cuda(name) and parse_target(name).runs_here()


def _share(options: Options, rows: int, start: float, targets: int) -> float | None:
    """Seconds for the search of one target."""
    if options.budget is None:
        return None
    left = options.budget - (time.monotonic() - start)
    gate_seconds = min(0.5 * left, targets * rows * _GATE_SECONDS) if options.gate else 0.0
    return max(1.0, (left - gate_seconds) / targets)


def _search(
    options: Options, name: str, rows: Sequence[ShapeRow], seconds: float | None, report: Report
) -> list[Found]:
    def named(step: str, done: int, total: int) -> None:
        report(f"{name} {step}", done, total)

    with LocalMeasurer() as measurer:
        backend = CpuBackend(parse_target(name), options.objects)
        tuner = Tuner(backend, measurer, options.records, named)
        return tuner.run(
            workloads(rows, options.cache),
            STRATEGIES[options.strategy](),
            Limits(options.trials, seconds),
            options.jobs,
        )


def _gate(
    options: Options, pack: Path, tuned: Sequence[str], rows: Sequence[ShapeRow], report: Report
) -> Manifest:
    made = manifest.load(pack)
    if not options.gate:
        return made
    like = {row.problem for row in rows}
    images: list[ImageEntry] = []
    for image in made.images:
        if image.target in tuned:
            threads = options.threads
            timed = of_target(gate(pack, image.target, rows, threads, report), image.target)
            modelled = model_fallbacks(pack, image.target, like, threads, report)
            image = _merged(timed, of_target(modelled, image.target))
        images.append(image)
    return replace(made, images=tuple(images))


def of_target(pack: Manifest, target: str) -> ImageEntry:
    """The image of a target."""
    return next(image for image in pack.images if image.target == target)


def _merged(timed: ImageEntry, modelled: ImageEntry) -> ImageEntry:
    """The timings of one and the models of the other."""
    kernels = (
        replace(kernel, model=other.model)
        for kernel, other in zip(timed.kernels, modelled.kernels, strict=True)
    )
    return replace(timed, kernels=tuple(kernels))
