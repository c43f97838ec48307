"""Measures a bundle of candidates where it was carried to.

Run again after an interruption, it goes on with what has not been measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import record
from .local import DEADLINE_SECONDS, LocalMeasurer
from .measurer import Group, MeasureError
from .record import Record, RecordError

SCHEMA = 1
FILE_NAME = "bundle.json"
IMAGES, LIBRARIES = "images", "lib"
RESULTS = "results.jsonl"


@dataclass(frozen=True)
class Entry:
    """Candidates for one workload.

    Attributes
    ----------
    group
        Their functions; the image is a name inside the bundle.
    configs
        How each computes, as a record has it.
    """

    group: Group
    configs: tuple[Mapping[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        """As the bundle has it."""
        return {"group": self.group.to_json(), "configs": [dict(c) for c in self.configs]}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Entry:
        """The inverse of :meth:`to_json`."""
        return cls(Group.from_json(fields["group"]), tuple(fields["configs"]))


class DamagedBundleError(ValueError):
    """A folder that is no bundle of candidates; the message says what is expected."""


def read(bundle: Path) -> tuple[dict[str, Any], list[Entry]]:
    """What a bundle says of all of it, and its candidates.

    Raises
    ------
    DamagedBundleError
        If it is none, or of another version.
    """
    path = bundle / FILE_NAME
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise DamagedBundleError(
                f"{path}: schema {document['schema']!r}, expected {SCHEMA}; emit the bundle again"
            )
        entries = [Entry.from_json(fields) for fields in document.pop("entries")]
    except OSError as error:
        raise DamagedBundleError(
            f"{path}: {error.strerror}; expected a folder made by `tf-tvm-ops tune --emit`"
        ) from error
    except (KeyError, TypeError, AttributeError) as error:
        raise DamagedBundleError(f"{path}: incomplete ({error!r}); emit it again") from error
    except json.JSONDecodeError as error:
        raise DamagedBundleError(f"{path}: not JSON ({error}); emit it again") from error
    return document, entries


def measure(
    bundle: Path,
    results: Path,
    *,
    deadline: float = DEADLINE_SECONDS,
    report: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> list[Record]:
    """Check and time what has not been measured yet, and note it in a file of records.

    Parameters
    ----------
    bundle
        The folder.
    results
        The file, added to as measurements are made.
    deadline
        Seconds for a candidate.
    report
        Told of progress.

    Returns
    -------
    list of Record
        Those that were made now.

    Raises
    ------
    DamagedBundleError, RecordError, MeasureError
    """
    about, entries = read(bundle)
    known = record.read(results)
    made: list[Record] = []
    device = "cuda" if about["target"].startswith("cuda:") else "cpu"
    with LocalMeasurer(deadline, device, str((bundle / LIBRARIES).resolve())) as measurer:

        def noted(entry: Entry, outcomes: Sequence[Any]) -> list[Record]:
            return [
                Record(
                    workload=entry.group.workload,
                    config=config,
                    target=about["target"],
                    code=about["code"],
                    machine=measurer.machine,
                    versions=about["versions"],
                    status=outcome.status,
                    median_us=outcome.median_us,
                    spread_us=outcome.spread_us,
                    message=outcome.message,
                )
                for config, outcome in zip(entry.configs, outcomes)
            ]

        def key(entry: Entry, config: Mapping[str, Any]) -> str:
            workload = entry.group.workload
            return record.key(workload, config, about["target"], about["code"], measurer.machine)

        left = [e for e in entries if any(key(e, config) not in known for config in e.configs)]
        report("measure", 0, len(left))
        for done, entry in enumerate(left, start=1):
            image = str((bundle / IMAGES / entry.group.image).resolve())
            for _, outcomes in measurer.measure([replace(entry.group, image=image)]):
                new = noted(entry, outcomes)
                record.append(results, new, alone=True)
                made += new
            report("measure", done, len(left))
    return made


def main(arguments: Sequence[str]) -> int:
    """``run.py`` of a bundle."""
    parser = argparse.ArgumentParser(
        prog="run.py", description="Check and time the kernels of this folder on this machine."
    )
    parser.add_argument("bundle", type=Path, help=argparse.SUPPRESS)
    parser.add_argument(
        "--out", type=Path, help=f"file to write or to go on with; default: {RESULTS} here"
    )
    parser.add_argument(
        "--deadline", type=float, default=DEADLINE_SECONDS, help="seconds for a candidate"
    )
    given = parser.parse_args(arguments)
    results = given.out or given.bundle / RESULTS
    try:
        made = measure(given.bundle, results, deadline=given.deadline, report=_print)
    except (DamagedBundleError, RecordError, MeasureError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    print(summary(made, results))
    return 0


def summary(made: Sequence[Record], results: Path) -> str:
    """One line of what was measured."""
    failed = sum(r.status != record.OK for r in made)
    return (
        f"{results}: {len(made)} candidates measured, {failed} failed; take it to where the bundle "
        f"was made: tf-tvm-ops tune --apply {results.name} ..."
    )


def _print(step: str, done: int, total: int) -> None:
    if done == total or done % 50 == 0:
        print(f"{step}: {done} of {total} problems", flush=True)
