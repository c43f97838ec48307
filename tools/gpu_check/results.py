"""What was found, as a document; ratios, means and acceptance marks computed from it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tf_tvm_ops.tools.gpu_check.cases import TRANSLATION, Case
from tf_tvm_ops.tools.gpu_check.parts import Outcome
from tf_tvm_ops.tools.gpu_check.timing import COLD, HOT
from tf_tvm_ops.tools.gpu_check.ways import (
    COMPILED,
    CUBLAS,
    CUBLAS_PASSES,
    OURS,
    OURS_FUSED,
    TRITON,
)

SCHEMA = 1

PAIRS = (
    (OURS_FUSED, CUBLAS_PASSES),
    (OURS, CUBLAS),
    (OURS_FUSED, CUBLAS),
    (OURS_FUSED, TRITON),
    (OURS_FUSED, COMPILED),
)
"""What is compared: ours, and a peer of the same run."""

HEADLINE_US = 3.0
TRANSLATION_RATIO = 2.0

MET, NOT_MET, NOT_MEASURED = "met", "not met", "not measured"


@dataclass(frozen=True)
class Ratio:
    """A peer's time over ours, of one case at one setting."""

    case: Case
    cache: str
    ours_us: float
    peer_us: float

    @property
    def value(self) -> float:
        """How many times faster ours is."""
        return self.peer_us / self.ours_us


@dataclass(frozen=True)
class Mark:
    """An acceptance mark.

    Attributes
    ----------
    text
        What is asked.
    verdict
        ``MET``, ``NOT_MET`` or ``NOT_MEASURED``.
    detail
        What was found.
    """

    text: str
    verdict: str
    detail: str


@dataclass(frozen=True)
class Record:
    """What a part found about a case: times of ways that took turns."""

    case: Case
    part: str
    symbol: str
    measurements: list[dict[str, Any]]
    faults: dict[str, str]

    def median(self, way: str, cache: str) -> float | None:
        """Microseconds, None if it was not measured."""
        for found in self.measurements:
            if (found["way"], found["cache"]) == (way, cache):
                return float(found["median_us"])
        return None


def records(cases: Sequence[Case], parts: dict[str, Outcome]) -> list[Record]:
    """What the timing parts found."""
    return [
        Record(cases[int(item)], part, **result)
        for part, outcome in parts.items()
        for item, result in outcome.results.items()
    ]


def ratios(found: Iterable[Record], ours: str, peer: str, cache: str) -> list[Ratio]:
    """Of all cases where both were measured in the same part."""
    result = []
    for record in found:
        own_us, peer_us = record.median(ours, cache), record.median(peer, cache)
        if own_us and peer_us:
            result.append(Ratio(record.case, cache, own_us, peer_us))
    return result


def geometric_mean(values: Sequence[float]) -> float | None:
    """None if there are none."""
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else None


def means(found: Sequence[Record]) -> list[dict[str, Any]]:
    """Geometric means of the ratios, for each pair and setting, of all cases and of each site."""
    sites = sorted({(record.case.table, record.case.site) for record in found})
    groups = [("", "")] + [(table, "") for table in sorted({t for t, _ in sites})] + sites
    result = []
    for ours, peer in PAIRS:
        for cache in (HOT, COLD):
            every = ratios(found, ours, peer, cache)
            for table, site in groups:
                values = [
                    ratio.value
                    for ratio in every
                    if table in ("", ratio.case.table) and site in ("", ratio.case.site)
                ]
                if values:
                    result.append(
                        {
                            **{"ours": ours, "peer": peer, "cache": cache},
                            **{"table": table, "site": site, "cases": len(values)},
                            "mean": geometric_mean(values),
                            "least": min(values),
                        }
                    )
    return result


def marks(cases: Sequence[Case], found: Sequence[Record]) -> list[Mark]:
    """The acceptance marks."""
    return [_headline(cases, found), *_translation(cases, found), *_never_slower(cases, found)]


def _headline(cases: Sequence[Case], found: Sequence[Record]) -> Mark:
    text = f"[64,8,1,17,128] float32 with transpose at most {HEADLINE_US:g} us, operands in cache"
    wanted = [case for case in cases if case.is_headline]
    times = {
        record.case: time
        for record in found
        if record.case in wanted
        for time in [record.median(OURS_FUSED, HOT)]
        if time is not None
    }
    if not wanted or len(times) < len(wanted):
        return Mark(text, NOT_MEASURED, f"{len(times)} of its {len(wanted)} layouts measured")
    detail = ", ".join(f"{time:.2f} us for {case}" for case, time in times.items())
    return Mark(text, MET if max(times.values()) <= HEADLINE_US else NOT_MET, detail)


def _translation(cases: Sequence[Case], found: Sequence[Record]) -> Iterator[Mark]:
    total = sum(case.table == TRANSLATION for case in cases)
    for cache in (HOT, COLD):
        text = (
            f"translation table, operands {_words(cache)}: geometric mean at least "
            f"{TRANSLATION_RATIO:g} times cuBLAS with separate passes"
        )
        every = ratios(found, OURS_FUSED, CUBLAS_PASSES, cache)
        values = [ratio.value for ratio in every if ratio.case.table == TRANSLATION]
        mean = geometric_mean(values)
        if mean is None:
            yield Mark(text, NOT_MEASURED, f"none of {total} products")
            continue
        verdict = MET if mean >= TRANSLATION_RATIO else NOT_MET
        detail = f"{mean:.2f} times, of {len(values)} of {total} products"
        yield Mark(text, verdict if len(values) == total else f"{verdict} so far", detail)


def _never_slower(cases: Sequence[Case], found: Sequence[Record]) -> Iterator[Mark]:
    for ours, peer in PAIRS[:2]:
        text = f"no kernel slower than cuBLAS: {ours} against {peer}"
        values = [r for cache in (HOT, COLD) for r in ratios(found, ours, peer, cache)]
        total = 2 * len(cases)
        if not values:
            yield Mark(text, NOT_MEASURED, f"none of {total} times")
            continue
        slower = [ratio for ratio in values if ratio.value < 1]
        worst = min(values, key=lambda ratio: ratio.value)
        detail = (
            f"{len(slower)} of {len(values)} slower ({total} wanted), the least ratio is "
            f"{worst.value:.2f} at {worst.case}, {_words(worst.cache)}"
        )
        verdict = NOT_MET if slower else MET if len(values) == total else f"{MET} so far"
        yield Mark(text, verdict, detail)


def _words(cache: str) -> str:
    return "in cache" if cache == HOT else "not in cache"


def document(
    machine: dict[str, Any],
    pack: dict[str, Any],
    cases: Sequence[Case],
    checks: Outcome,
    parts: dict[str, Outcome],
    skipped: dict[str, str],
) -> dict[str, Any]:
    """Everything, for programs."""
    found = records(cases, parts)
    return {
        "schema": SCHEMA,
        "machine": machine,
        "pack": pack,
        "marks": [asdict(mark) for mark in marks(cases, found)],
        "geometric_means": means(found),
        "parts": {
            name: {
                "seconds": outcome.seconds,
                "limit_seconds": outcome.limit_seconds,
                "workers": outcome.workers,
                "done": len(outcome.results),
                "crashed": outcome.crashed,
                "not_reached": outcome.not_reached,
                "problem": outcome.problem,
            }
            for name, outcome in {"check": checks, **parts}.items()
        },
        "skipped_parts": skipped,
        "checks": {**checks.results, **checks.crashed},
        "cases": [case.to_json() for case in cases],
        "measurements": [{**asdict(record), "case": cases.index(record.case)} for record in found],
    }
