"""Measurements on disk: JSON lines, one for each, appended as they are made.

A file can be cut off anywhere (a kill, a full disk): a line that is not whole is not there. Files
are merged by writing one after the other. Where a measurement was made twice, the later one counts.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .workload import Workload

SCHEMA = 1

OK = "ok"
WRONG = "wrong"
CRASHED = "crashed"
TIMED_OUT = "timed_out"
NOT_BUILT = "not_built"
STATUSES = (OK, WRONG, CRASHED, TIMED_OUT, NOT_BUILT)
"""What became of a candidate: timed; or its results were wrong, it ended the process that ran it,
it did not end in time, or it could not be compiled."""


class RecordError(ValueError):
    """A record file that cannot be used; the message names it, the fault and the mend."""


@dataclass(frozen=True)
class Record:
    """One measurement of one candidate.

    Attributes
    ----------
    workload
        What was measured.
    config
        How it was computed: rule and knobs, as a manifest has them.
    target
        Name of the target.
    code
        Digest of the code generator, so that a kernel of another version is another candidate.
    machine
        The processor, as :func:`~.machine.processor` names it.
    versions
        Of what compiled the kernel.
    status
        One of :data:`STATUSES`.
    median_us, spread_us
        Microseconds for one pass over the workload, and the interquartile range; 0 unless
        ``status`` is ``OK``.
    message
        What went wrong, for the other statuses.
    """

    workload: Workload
    config: Mapping[str, Any]
    target: str
    code: str
    machine: str
    versions: Mapping[str, str]
    status: str
    median_us: float = 0.0
    spread_us: float = 0.0
    message: str = ""

    @property
    def key(self) -> str:
        """The same for measurements that stand for each other."""
        return key(self.workload, self.config, self.target, self.code, self.machine)

    def to_json(self) -> dict[str, Any]:
        """As a line of the file has it."""
        fields: dict[str, Any] = {
            "schema": SCHEMA,
            **self.workload.to_json(),
            "config": dict(self.config),
            "target": self.target,
            "code": self.code,
            "machine": self.machine,
            "versions": dict(self.versions),
            "status": self.status,
        }
        if self.status == OK:
            return fields | {"median_us": self.median_us, "spread_us": self.spread_us}
        return fields | {"message": self.message}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Record:
        """The inverse of :meth:`to_json`."""
        if fields["status"] not in STATUSES:
            raise ValueError(f"status {fields['status']!r}")
        if not isinstance(fields["config"], Mapping):
            raise TypeError(f"config {fields['config']!r}")
        median, spread = (float(fields.get(name, 0)) for name in ("median_us", "spread_us"))
        if fields["status"] == OK and not 0 < median < math.inf:
            raise ValueError(f"median_us {median}")
        return cls(
            workload=Workload.from_json(fields),
            config=fields["config"],
            target=fields["target"],
            code=fields["code"],
            machine=fields["machine"],
            versions=fields["versions"],
            status=fields["status"],
            median_us=median,
            spread_us=spread,
            message=fields.get("message", ""),
        )


def key(workload: Workload, config: Mapping[str, Any], target: str, code: str, machine: str) -> str:
    """What tells a measurement from others."""
    parts = [workload.to_json(), dict(config), target, code, machine]
    return json.dumps(parts, sort_keys=True)


def read(path: Path) -> dict[str, Record]:
    """The measurements of a file, by key. A file that is not there has none.

    Raises
    ------
    RecordError
        If it cannot be read, or a whole line is no record.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}; expected a file of measurements") from error
    records: dict[str, Record] = {}
    # What follows the last newline is a line cut off.
    for number, line in enumerate(lines[:-1], start=1):
        if not line.strip():
            continue
        record = _parse(path, number, line)
        records[record.key] = record
    return records


def check_writable(path: Path) -> None:
    """Refuse early what :func:`append` could not write.

    Raises
    ------
    RecordError
        If the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
    except OSError as error:
        raise RecordError(
            f"{path}: {error.strerror}; expected a file that measurements can be added to: name "
            "another --records"
        ) from error


def append(path: Path, records: Iterable[Record], *, alone: bool = False) -> None:
    """Add measurements to a file, whole lines only.

    Parameters
    ----------
    path
        The file.
    records
        What is added.
    alone
        Whether nobody else writes to it; otherwise this is safe beside other writers.

    Raises
    ------
    RecordError
        If the file cannot be written.
    """
    text = b"".join(json.dumps(r.to_json(), sort_keys=True).encode() + b"\n" for r in records)
    if not text:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _lock(path, alone), path.open("ab+") as file:
            _end_line(file)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise RecordError(
            f"{path}: {error.strerror}; measurements made so far are kept: free some space or name "
            "another --records, and run again"
        ) from error


def _lock(path: Path, alone: bool) -> AbstractContextManager[object]:
    if alone:
        return nullcontext()
    import filelock  # not where a bundle is measured

    return filelock.FileLock(f"{path}.lock")


def _end_line(file: Any) -> None:
    """Start a line of its own after one that was cut off, which then reads as no record."""
    size = file.seek(0, os.SEEK_END)
    if not size:
        return
    file.seek(size - 1)
    if file.read(1) != b"\n":
        # Cut the fragment off rather than leave a line that no reader takes.
        file.seek(0)
        whole = file.read().rfind(b"\n") + 1
        file.truncate(whole)
    file.seek(0, os.SEEK_END)


def _parse(path: Path, number: int, line: bytes) -> Record:
    try:
        fields = json.loads(line)
        if fields["schema"] != SCHEMA:
            raise RecordError(
                f"{path}:{number}: schema {fields['schema']!r}, expected {SCHEMA}; measure again"
            )
        return Record.from_json(fields)
    except RecordError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(
            f"{path}:{number}: not a measurement ({error!r}); remove the line or name another file"
        ) from error


def of_target(
    records: Mapping[str, Record], target: str, code: str, machine: str
) -> Iterator[Record]:
    """Those that count for one target on one machine."""
    for record in records.values():
        if (record.target, record.code, record.machine) == (target, code, machine):
            yield record
