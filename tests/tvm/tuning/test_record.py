"""Record files survive kills, full disks and other writers: kernels/tuning/record.py."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import resource

import filelock
import pytest

from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.tuning import record
from tf_tvm_ops.kernels.tuning.record import Record, RecordError
from tf_tvm_ops.kernels.tuning.workload import Workload

BASE = Record(
    workload=Workload(Problem(3, 5, 7, rhs="k"), 12),
    config={"rule": "cpu_dot", "tile_m": 1},
    target="cpu:x86-64-v3",
    code="abc",
    machine="a processor",
    versions={"apache-tvm": "0.27"},
    status=record.OK,
    median_us=1.5,
    spread_us=0.25,
)


def numbered(tile: int, **fields) -> Record:
    return dataclasses.replace(BASE, config={"rule": "cpu_dot", "tile_m": tile}, **fields)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "records.jsonl"


def test_round_trip(path):
    wrong = numbered(2, status=record.WRONG, median_us=0.0, spread_us=0.0, message="3 of 4 wrong")
    cold = numbered(1, workload=dataclasses.replace(BASE.workload, cache="cold"))
    written = [BASE, wrong, cold]
    record.append(path, written)
    found = record.read(path)
    assert list(found.values()) == written
    assert found == {r.key: r for r in written}
    assert list(record.of_target(found, "cpu:x86-64-v3", "abc", "a processor")) == written
    for other in (("cpu:x86-64-v4", "abc", "a processor"), ("cpu:x86-64-v3", "abc", "another")):
        assert not list(record.of_target(found, *other))
    assert not list(record.of_target(found, "cpu:x86-64-v3", "abd", "a processor"))


def test_no_file_has_no_measurements(path):
    assert record.read(path) == {}
    record.append(path, [])
    assert not path.exists()


def test_later_measurement_counts(path):
    record.append(path, [BASE, numbered(2)])
    record.append(path, [numbered(1, median_us=1.25)])
    assert [r.median_us for r in record.read(path).values()] == [1.25, 1.5]


@pytest.mark.parametrize("kept", [1, 40, -1])
def test_line_cut_off_is_not_there_and_the_next_one_is_whole(path, kept):
    record.append(path, [numbered(1), numbered(2)])
    first, second, _ = path.read_bytes().split(b"\n")
    path.write_bytes(first + b"\n" + second[:kept])
    assert list(record.read(path).values()) == [numbered(1)]
    record.append(path, [numbered(3)])
    assert list(record.read(path).values()) == [numbered(1), numbered(3)]


def test_file_that_is_one_fragment(path):
    path.parent.mkdir()
    path.write_bytes(b'{"schema": 1, "cac')
    assert record.read(path) == {}
    record.append(path, [BASE])
    assert list(record.read(path).values()) == [BASE]


def test_merged_by_concatenation(path):
    others = [path.with_name(name) for name in "ab"]
    record.append(others[0], [numbered(1), numbered(2)])
    record.append(others[1], [numbered(2, median_us=9.0), numbered(3)])
    path.write_bytes(b"".join(other.read_bytes() for other in others))
    assert [(r.config["tile_m"], r.median_us) for r in record.read(path).values()] == [
        *((1, 1.5), (2, 9.0), (3, 1.5))
    ]


def _write(path, first: int) -> None:
    for tile in range(first, first + 100):
        record.append(path, [numbered(tile, message="x")] * 3)


def test_two_writers_at_once(path):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(path, first)) for first in (0, 1000)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert len(path.read_bytes().splitlines()) == 600
    assert len(record.read(path)) == 200


def test_writer_waits_for_another_one(path):
    """Who finds a fragment cuts it off; meanwhile nobody else may write behind it."""
    record.append(path, [BASE])
    writer = multiprocessing.get_context("fork").Process(target=_write, args=(path, 5))
    with filelock.FileLock(f"{path}.lock"):
        writer.start()
        writer.join(0.3)
        assert writer.is_alive()
        assert len(record.read(path)) == 1
    writer.join()
    assert len(record.read(path)) == 101


@pytest.mark.parametrize(
    "change",
    [
        b"not JSON",
        b"[1, 2]",
        b"7",
        b"\xff\xfe",
        {"schema": 2},
        {"status": "fine"},
        {"median_us": 0},
        {"median_us": float("nan")},
        {"median_us": "fast"},
        {"config": 5},
        {"problem": {"m": 3}},
        {"matrices": None},
        {"cache": "warm"},
    ],
    ids=str,
)
def test_what_is_no_measurement_is_named(path, change):
    record.append(path, [BASE])
    line = change if isinstance(change, bytes) else json.dumps(BASE.to_json() | change).encode()
    with path.open("ab") as file:
        file.write(line + b"\n")
    record.append(path, [numbered(3)])
    with pytest.raises(RecordError, match=rf"{path}:2: (not a measurement|schema 2, expected 1)"):
        record.read(path)


def _fill(path, limit: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    with pytest.raises(RecordError, match=rf"{path}: .*free some space"):
        record.append(path, [numbered(tile) for tile in range(100)])


def test_disk_that_fills_up(path):
    """As a limit on the size of a file has it; the measurements before it stay usable."""
    record.append(path, [BASE])
    limit = path.stat().st_size + 1000
    child = multiprocessing.get_context("fork").Process(target=_fill, args=(path, limit))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert path.stat().st_size == limit
    before = len(record.read(path))
    record.append(path, [numbered(1000)])
    assert len(record.read(path)) == before + 1


def test_folder_in_place_of_the_file(path):
    path.mkdir(parents=True)
    with pytest.raises(RecordError, match="Is a directory"):
        record.read(path)
    with pytest.raises(RecordError, match="Is a directory"):
        record.append(path, [BASE])
