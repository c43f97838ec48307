"""A run of ``tf-tvm-ops tune``: search, pack, gate, in this order."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tf_tvm_ops.kernels import manifest, publish
from tf_tvm_ops.kernels.build import BuildError
from tf_tvm_ops.kernels.cuda.packages import CompilerError
from tf_tvm_ops.kernels.cuda.targets import is_cuda, parse_cuda_target
from tf_tvm_ops.kernels.generate import GenerateError, generate
from tf_tvm_ops.kernels.manifest import ImageEntry, Manifest
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.shapes import ShapeRow, load_tables
from tf_tvm_ops.kernels.targets import TARGETS, parse_target
from tf_tvm_ops.kernels.tuning import bundle as bundles
from tf_tvm_ops.kernels.tuning import record
from tf_tvm_ops.kernels.tuning.backend import Backend, CpuBackend
from tf_tvm_ops.kernels.tuning.cuda_backend import CudaBackend
from tf_tvm_ops.kernels.tuning.local import LocalMeasurer
from tf_tvm_ops.kernels.tuning.measurer import MeasureError
from tf_tvm_ops.kernels.tuning.record import Record, RecordError
from tf_tvm_ops.kernels.tuning.search import STRATEGIES
from tf_tvm_ops.kernels.tuning.tuner import Found, Limits, Tuner, known
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

_GATE_SECONDS = 1.0
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
    notes
        What else the user should know, a line each.
    """

    found: dict[str, list[Found]] = field(default_factory=dict)
    pack: Manifest | None = None
    rejected: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """What there is to say of each target."""
        lines = [f"left out {line}" for line in self.rejected] + self.notes
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
        timed = [k for k in kernels if any(t.duels for t in k.timings)]
        serve = [k for k in timed if k.serves_everywhere]
        text = f"{len(kernels)} kernels, each checked against float64"
        if timed:
            text += f"; {len(serve)} of {len(timed)} measured serve in every setting"
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
    assert options.out is not None
    publish.check_writable(options.out)
    record.check_writable(options.records)
    backends = [backend_of(name, options.objects) for name in dict.fromkeys(names)]
    summary = Summary()
    if options.apply:
        summary.found = applied(options, backends, rows)
        gated: list[str] = []
    else:
        tuned = [b for b in backends if options.tracker or _measures_here(b.name)]
        if not tuned:
            asked = ", ".join(backend.name for backend in backends)
            raise ValueError(
                f"{asked}: this machine cannot run it, so nothing can be measured here; "
                "use --emit, or --tracker"
            )
        for index, backend in enumerate(tuned):
            seconds = _share(options, len(rows), start, len(tuned) - index)
            summary.found[backend.name] = _search(options, backend, rows, seconds, report)
        gated = [b.name for b in tuned if options.gate and not options.tracker]
    choices: dict[str, Mapping[Problem, Any]] = {
        name: {f.state.workload.problem: f.choice for f in found if f.choice is not None}
        for name, found in summary.found.items()
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
    summary.notes += [
        f"{b.name}: not tuned, since this machine cannot run it; use --emit, or --tracker"
        for b in backends
        if b.name not in summary.found
    ]
    summary.pack = _gate(options, made.pack, gated, rows, report, summary.notes)
    files = {image.file: made.pack / image.file for image in summary.pack.images}
    publish.publish(options.out, summary.pack, files)
    return summary


def backend_of(name: str, objects: Path) -> Backend:
    """What compiles candidates for a target.

    Raises
    ------
    ValueError
        If there is no such target.
    """
    if is_cuda(name):
        return CudaBackend(parse_cuda_target(name), objects)
    return CpuBackend(parse_target(name), objects)


def _measures_here(name: str) -> bool:
    return not is_cuda(name) and parse_target(name).runs_here()


def applied(
    options: Options, backends: Sequence[Backend], rows: Sequence[ShapeRow]
) -> dict[str, list[Found]]:
    """What was measured elsewhere, which is added to the records.

    Raises
    ------
    RecordError, ValueError
        If a file cannot be read, or has nothing for a target, or mixes machines.
    """
    records: dict[str, Record] = {}
    for path in options.apply:
        if not path.exists():
            raise RecordError(f"{path}: no such file; expected results of `tf-tvm-ops measure`")
        records |= record.read(path)
    found = {}
    for backend in backends:
        mine = {
            key: r
            for key, r in records.items()
            if (r.target, r.code) == (backend.name, backend.code)
        }
        machines = sorted({r.machine for r in mine.values()})
        if len(machines) != 1:
            has = "; ".join(machines) or "none of this version"
            raise ValueError(
                f"{backend.name}: expected measurements of one machine in the results, found "
                f"{has}; emit and measure again, or give the results of one machine"
            )
        record.append(options.records, mine.values())
        loads = workloads(rows, options.cache)
        found[backend.name] = [Found(s) for s in known(backend, machines[0], mine, loads)]
        if not any(f.state.outcomes for f in found[backend.name]):
            raise ValueError(
                f"{backend.name}: the results are of other products or numbers of matrices, or of "
                f"operands that were not {options.cache}; give the tables and the --cache that the "
                "bundle was made with"
            )
    return found


def emit(options: Options, bundle: Path, report: Report) -> str:
    """Put candidates into a folder that is measured elsewhere, and say so in a line.

    Raises
    ------
    ERRORS
        Before anything is written.
    """
    if len(options.targets) != 1:
        raise ValueError("--emit needs one --target: what the other machine is")
    backend = backend_of(options.targets[0], options.objects)
    loads = workloads(load_tables(options.shapes), options.cache)
    states = known(backend, "", {}, loads)
    strategy = STRATEGIES[options.strategy]()
    count = bundles.emit(bundle, backend, states, strategy, options.trials, options.jobs, report)
    return (
        f"{bundle}: {count} candidates of {len(states)} problems; where they are to be measured: "
        "python run.py, or tf-tvm-ops measure"
    )


def _share(options: Options, rows: int, start: float, targets: int) -> float | None:
    """Seconds for the search of one target."""
    if options.budget is None:
        return None
    left = options.budget - (time.monotonic() - start)
    gate_seconds = min(0.5 * left, targets * rows * _GATE_SECONDS) if options.gate else 0.0
    return max(1.0, (left - gate_seconds) / targets)


def _measurer(options: Options) -> Any:
    """A context manager that gives a :class:`~tf_tvm_ops.kernels.tuning.measurer.Measurer`."""
    if not options.tracker:
        return LocalMeasurer()
    from tf_tvm_ops.kernels.tuning.rpc import RpcMeasurer

    host, _, port = options.tracker.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"--tracker {options.tracker}: expected HOST:PORT")
    return RpcMeasurer(host, int(port), options.key)


def _search(
    options: Options,
    backend: Backend,
    rows: Sequence[ShapeRow],
    seconds: float | None,
    report: Report,
) -> list[Found]:
    def named(step: str, done: int, total: int) -> None:
        report(f"{backend.name} {step}", done, total)

    with _measurer(options) as measurer:
        return Tuner(backend, measurer, options.records, named).run(
            workloads(rows, options.cache),
            STRATEGIES[options.strategy](),
            Limits(options.trials, seconds),
            options.jobs,
        )


def _gate(
    options: Options,
    pack: Path,
    gated: Sequence[str],
    rows: Sequence[ShapeRow],
    report: Report,
    notes: list[str],
) -> Manifest:
    made = manifest.load(pack)
    like = {row.problem for row in rows}
    images: list[ImageEntry] = []
    for image in made.images:
        if image.target in gated:
            threads = options.threads
            timed = of_target(gate(pack, image.target, rows, threads, report, notes), image.target)
            try:
                modelled = model_fallbacks(pack, image.target, like, threads, report)
                timed = _merged(timed, of_target(modelled, image.target))
            except WorkerError as error:
                notes.append(f"{image.target}: no model for other shapes: {error}")
            image = timed
        images.append(image)
    return replace(made, images=tuple(images))


def of_target(pack: Manifest, target: str) -> ImageEntry:
    """The image of a target."""
    return next(image for image in pack.images if image.target == target)


def _merged(timed: ImageEntry, modelled: ImageEntry) -> ImageEntry:
    """The timings of one and the models of the other."""
    models = {kernel.symbol: kernel.model for kernel in modelled.kernels}
    kernels = (replace(kernel, model=models[kernel.symbol]) for kernel in timed.kernels)
    return replace(timed, kernels=tuple(kernels))
