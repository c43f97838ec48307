"""``run.py`` of a bundle: check every kernel, time the products, write what was found."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tf_tvm_ops.kernels import manifest
from tf_tvm_ops.kernels.manifest import ImageEntry, Manifest
from tf_tvm_ops.tools.gpu_check import cases as cases_file
from tf_tvm_ops.tools.gpu_check import parts, report, results, worker
from tf_tvm_ops.tools.gpu_check.cases import Case
from tf_tvm_ops.tools.gpu_check.images import PACK, choose, kernels
from tf_tvm_ops.tools.gpu_check.parts import Outcome
from tf_tvm_ops.tools.gpu_check.ways import (
    COMPILED,
    CUBLAS,
    CUBLAS_PASSES,
    OURS,
    OURS_FUSED,
    TRITON,
)

JSON_FILE, TEXT_FILE = "results.json", "results.txt"

_DESCRIBE_SECONDS = 90.0


@dataclass(frozen=True)
class _Timing:
    """A part that times.

    Attributes
    ----------
    name
        Of the part.
    ways
        What takes turns.
    needs
        The package without which it is skipped.
    until
        Share of all the time, counted from the start, at which it ends.
    item_seconds
        A product that takes longer has failed.
    """

    name: str
    ways: tuple[str, ...]
    needs: str
    until: float
    item_seconds: float


_CHECK_UNTIL = 0.25
_CHECK_ITEM_SECONDS = 20.0

_TIMINGS = (
    _Timing("cuBLAS", (OURS_FUSED, OURS, CUBLAS_PASSES, CUBLAS), "PyTorch", 0.65, 30.0),
    _Timing("Triton", (OURS_FUSED, TRITON), "Triton", 0.82, 60.0),
    _Timing("compile", (OURS_FUSED, COMPILED), "PyTorch", 1.0, 90.0),
)
_ALONE = "ours"


class CheckError(RuntimeError):
    """The check cannot begin; the message says what is missing."""


def main(bundle: Path, arguments: Sequence[str] | None = None) -> int:
    """Run the check.

    Parameters
    ----------
    bundle
        Folder of the bundle.
    arguments
        Of the command line.

    Returns
    -------
    int
        Exit status: 0, 1 if a kernel is wrong or the check cannot be made, 2 for a wrong command
        line.
    """
    options = _parser().parse_args(arguments)
    if options.worker:
        worker.main(options.worker)
    try:
        document, cases = run(bundle, options)
    except (CheckError, manifest.ManifestError) as error:
        print(f"gpu check: {error}", file=sys.stderr)
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    text = report.summary(document, cases)
    _write(options.out / JSON_FILE, json.dumps(document, indent=1) + "\n")
    _write(options.out / TEXT_FILE, f"{text}\n\n{report.table(document, cases)}\n")
    print(text)
    print(f"\nAll times: {options.out / TEXT_FILE}; for programs: {options.out / JSON_FILE}")
    return int(any(document["checks"].values()) or bool(document["parts"]["check"]["problem"]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run.py", description="Check and time the GPU kernels of this folder."
    )
    parser.add_argument(
        "--seconds", type=float, default=280.0, help="for everything (default: %(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path(), help=f"folder of {JSON_FILE} and {TEXT_FILE}"
    )
    parser.add_argument("--check-only", action="store_true", help="time nothing")
    parser.add_argument("--rounds", type=int, default=11, help="of timing (default: %(default)s)")
    parser.add_argument(
        "--launches",
        type=int,
        default=100,
        help="at most, in a graph of operands that stay in cache (default: %(default)s)",
    )
    parser.add_argument(
        "--item-seconds", type=float, help="a kernel or product that takes longer has failed"
    )
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser


def run(bundle: Path, options: argparse.Namespace) -> tuple[dict[str, Any], list[Case]]:
    """Check and time.

    Returns
    -------
    dict, list of Case
        The results, and the cases that they count.

    Raises
    ------
    CheckError
        If there is no GPU, or none that runs a kernel of the bundle, or a library is missing.
    ManifestError
        If the pack's manifest cannot be used.
    """
    start = time.monotonic()
    found = manifest.load(bundle / PACK)
    machine = _describe(bundle)
    images = _usable(found, machine)
    with tempfile.TemporaryDirectory(prefix="tf-tvm-ops-gpu-check-") as caches:
        # What peers compile is not left behind, and not taken from earlier runs.
        environment = {
            "TRITON_CACHE_DIR": str(Path(caches, "triton")),
            "TORCHINDUCTOR_CACHE_DIR": str(Path(caches, "inductor")),
        }
        checks = parts.run(
            bundle,
            "check",
            [choice.key for choice in kernels(images)],
            deadline=start + options.seconds * (1.0 if options.check_only else _CHECK_UNTIL),
            item_seconds=options.item_seconds or _CHECK_ITEM_SECONDS,
        )
        _say("check", checks)
        cases = cases_file.read(bundle)
        timed, skipped = _time(bundle, options, start, images, cases, machine, checks, environment)
    pack = {
        "made_with": dict(found.made_with),
        "ignored": [i.target for i in found.images if i not in images],
    }
    return results.document(machine, pack, cases, checks, timed, skipped), cases


def _describe(bundle: Path) -> dict[str, Any]:
    deadline = time.monotonic() + _DESCRIBE_SECONDS
    outcome = parts.run(
        bundle, "describe", ["machine"], deadline=deadline, item_seconds=_DESCRIBE_SECONDS
    )
    if "machine" not in outcome.results:
        raise CheckError(
            outcome.problem or outcome.crashed.get("machine") or "the GPU does not answer"
        )
    description: dict[str, Any] = outcome.results["machine"]
    return description


def _usable(found: Manifest, machine: dict[str, Any]) -> list[ImageEntry]:
    images = [
        image for name in machine["targets"] for image in found.images if image.target == name
    ]
    if not images:
        card = machine["card"]
        has = ", ".join(image.target for image in found.images)
        raise CheckError(
            f"{card['name']} has compute capability {card['capability'] / 10} and runs none of "
            f"{has}; make a bundle of a pack for cuda:sm_{card['capability']}"
        )
    return images


def _time(
    bundle: Path,
    options: argparse.Namespace,
    start: float,
    images: list[ImageEntry],
    cases: list[Case],
    machine: dict[str, Any],
    checks: Outcome,
    environment: dict[str, str],
) -> tuple[dict[str, Outcome], dict[str, str]]:
    """Outcomes of the parts that were done, reasons of those that were not."""
    if options.check_only:
        return {}, {timing.name: "only the check was asked for" for timing in _TIMINGS}
    items, left_out = _items(images, cases, {**checks.results, **checks.crashed})
    done: dict[str, Outcome] = {}
    skipped = left_out
    for timing in _TIMINGS:
        name, ways, until = timing.name, timing.ways, timing.until
        if timing.needs in machine["missing"]:
            skipped[name] = f"{timing.needs} cannot be used: {machine['missing'][timing.needs]}"
            if done:
                continue
            # There is nothing to compare with, but times are worth having.
            name, ways, until = _ALONE, (OURS_FUSED, OURS), 1.0
        done[name] = parts.run(
            bundle,
            "time",
            items,
            deadline=start + options.seconds * until,
            item_seconds=options.item_seconds or timing.item_seconds,
            options={
                "ways": ways,
                "timing": {"rounds": options.rounds, "launches": options.launches},
            },
            environment=environment,
        )
        _say(name, done[name])
    return done, skipped


def _items(
    images: list[ImageEntry], cases: list[Case], checks: dict[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Numbers of the cases that can be timed, and a reason for each other."""
    items, left_out = [], {}
    for number, case in enumerate(cases):
        choice = choose(images, case.problem)
        if choice is None:
            left_out[f"timing of {case}"] = "no kernel for it that this GPU runs"
        elif checks.get(choice.key):
            left_out[f"timing of {case}"] = f"its kernel is wrong, {choice.key}"
        else:
            items.append(str(number))
    return items, left_out


def _say(name: str, outcome: Outcome) -> None:
    """A word on the way, since all of it takes minutes."""
    print(
        f"{name}: {len(outcome.results)} done, {len(outcome.crashed)} crashed, "
        f"{len(outcome.not_reached)} not reached, {outcome.seconds:.0f} s",
        file=sys.stderr,
        flush=True,
    )


def _write(path: Path, text: str) -> None:
    """Write beside the final place, then rename: a file that exists is whole."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
