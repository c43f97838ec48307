"""The document of results as a text for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tf_tvm_ops.tools.gpu_check.cases import Case
from tf_tvm_ops.tools.gpu_check.timing import COLD, HOT
from tf_tvm_ops.tools.gpu_check.ways import WAYS


def summary(document: dict[str, Any], cases: Sequence[Case]) -> str:
    """What fits on a screen or two."""
    return "\n".join(
        [
            *_machine(document),
            "",
            *_checks(document["checks"], document["parts"]["check"]),
            "",
            *_marks(document["marks"]),
            "",
            *_means([mean for mean in document["geometric_means"] if not mean["site"]]),
            "",
            *_parts(document, cases),
        ]
    )


def table(document: dict[str, Any], cases: Sequence[Case]) -> str:
    """Means of each site, and every time that was measured."""
    rows: dict[tuple[int, str, str], dict[str, float]] = {}
    for record in document["measurements"]:
        for found in record["measurements"]:
            key = record["case"], record["part"], found["cache"]
            rows.setdefault(key, {})[found["way"]] = found["median_us"]
    lines = [
        *_means([mean for mean in document["geometric_means"] if mean["site"]]),
        "",
        "Microseconds of one launch, medians; each line was measured in turns.",
        f"{'product':58} {'part':8} {'cache':5}" + "".join(f"{way:>17}" for way in WAYS),
    ]
    for (number, part, cache), times in rows.items():
        cells = "".join(
            f"{times[way]:17.2f}" if way in times else f"{'':17}" for way in WAYS
        ).rstrip()
        lines.append(f"{cases[number]!s:58} {part:8} {cache:5}{cells}")
    return "\n".join(lines)


def _machine(document: dict[str, Any]) -> Iterator[str]:
    machine = document["machine"]
    card = machine["card"]
    capability = f"{card['capability'] // 10}.{card['capability'] % 10}"
    yield (
        f"{card['name']}, compute capability {capability}, {card['multiprocessors']} "
        f"multiprocessors, cache {card['cache_bytes'] / 2**20:.0f} MiB, memory "
        f"{card['memory_bytes'] / 2**30:.0f} GiB; driver for CUDA {machine['driver_cuda']}"
    )
    for gpu in machine["gpus"]:
        yield "nvidia-smi: " + ", ".join(f"{key} {value}" for key, value in gpu.items())
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    yield f"{machine['cpu']}, {machine['cores']} cores, load {machine['load']:.1f}; {versions}"
    for name, reason in machine["missing"].items():
        yield f"not compared with {name}: {reason}"
    made_with = document["pack"]["made_with"]
    yield "pack made with " + ", ".join(f"{key} {value}" for key, value in made_with.items())
    ignored = document["pack"]["ignored"]
    if ignored:
        yield f"images that this GPU cannot run: {', '.join(ignored)}"


def _checks(checks: dict[str, str], part: dict[str, Any]) -> Iterator[str]:
    wrong = {key: fault for key, fault in checks.items() if fault}
    yield (
        f"Kernels checked against float64: {len(checks) - len(wrong)} right, {len(wrong)} wrong, "
        f"{len(part['not_reached'])} not reached"
    )
    for key, fault in wrong.items():
        yield f"  WRONG {key}: {fault}"
    for key in part["not_reached"]:
        yield f"  not reached: {key}"
    if part["problem"]:
        yield f"  given up: {part['problem']}"


def _marks(marks: Sequence[dict[str, str]]) -> Iterator[str]:
    yield "Acceptance marks"
    for mark in marks:
        yield f"  {mark['verdict'].upper()}: {mark['text']}"
        yield f"      {mark['detail']}"


def _means(means: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield "How many times faster than the peer: geometric mean (least; number of products)"
    for mean in means:
        where = " / ".join(filter(None, (mean["table"], mean["site"]))) or "all"
        cache = {HOT: "in cache", COLD: "not in cache"}[mean["cache"]]
        yield (
            f"  {mean['ours']} : {mean['peer']}, {cache}, {where}: "
            f"{mean['mean']:.2f} ({mean['least']:.2f}; {mean['cases']})"
        )
    if not means:
        yield "  nothing was compared"


def _parts(document: dict[str, Any], cases: Sequence[Case]) -> Iterator[str]:
    yield "Parts"
    for name, part in document["parts"].items():
        left = len(part["not_reached"])
        yield (
            f"  {name}: {part['done']} done, {len(part['crashed'])} crashed, {left} not reached in "
            f"{part['seconds']:.0f} of {part['limit_seconds']:.0f} s, {part['workers']} processes"
        )
        if part["problem"]:
            yield f"    given up: {part['problem']}"
        if name == "check":
            continue
        for item, reason in part["crashed"].items():
            yield f"    crashed: {cases[int(item)]}: {reason}"
        for item in part["not_reached"]:
            yield f"    not reached: {cases[int(item)]}"
    for name, reason in document["skipped_parts"].items():
        yield f"  {name}: skipped, {reason}"
    for record in document["measurements"]:
        for way, fault in record["faults"].items():
            yield f"  no time of {way} for {cases[record['case']]}: {fault}"
