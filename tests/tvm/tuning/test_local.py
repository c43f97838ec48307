"""Candidates that fail are told apart, and the process that runs them lasts: tuning/local.py."""

from __future__ import annotations

import mmap
import os
import re
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.schedules import Choice
from tf_tvm_ops.kernels.tuning.local import LocalMeasurer
from tf_tvm_ops.kernels.tuning.measurer import MeasureError
from tf_tvm_ops.kernels.tuning.record import CRASHED, OK, TIMED_OUT, WRONG
from tf_tvm_ops.kernels.tuning.workload import COLD, Workload

from .conftest import SMALL
from .faulty import RULE, FaultyBackend, FaultyConfig


def choices(*faults: str) -> list[Choice]:
    return [Choice(RULE, FaultyConfig(fault, number)) for number, fault in enumerate(faults)]


@pytest.fixture
def backend(fast_target, cache):
    return FaultyBackend(fast_target, cache, [])


def test_faults_of_a_group_are_told_apart(backend, impatient, make_group):
    faults = ("", "wrong", "crashes", "", "hangs", "")
    group = make_group(backend, SMALL, choices(*faults))
    ((found, outcomes),) = impatient.measure([group])
    assert found is group
    expected = {"": OK, "wrong": WRONG, "crashes": CRASHED, "hangs": TIMED_OUT}
    assert [outcome.status for outcome in outcomes] == [expected[fault] for fault in faults]
    assert "results wrong" in outcomes[1].message
    assert outcomes[2].message == "ended by SIGSEGV"
    assert outcomes[4].message == "not done after 3 s"
    for outcome in outcomes:
        assert outcome.ok == (0 < outcome.median_us < 1000)


def test_after_a_crash_another_process_goes_on(backend, local, make_group):
    groups = [
        make_group(backend, SMALL, choices("crashes")),
        make_group(backend, SMALL, choices("", "")),
    ]
    crashed, fine = [outcomes for _, outcomes in local.measure(groups)]
    assert [outcome.status for outcome in crashed] == [CRASHED]
    assert [outcome.status for outcome in fine] == [OK, OK]


def test_process_that_ended_between_groups_is_replaced(backend, local, make_group):
    group = make_group(backend, SMALL, choices(""))
    list(local.measure([group]))
    first = local._worker
    first._process.kill()
    first._process.wait()
    ((_, outcomes),) = local.measure([group])
    assert outcomes[0].ok
    assert local._worker is not first


def test_process_that_never_works_is_an_error(backend, make_group, tmp_path):
    group = make_group(backend, SMALL, choices(""))
    with (
        LocalMeasurer(libraries=str(tmp_path)) as broken,
        pytest.raises(MeasureError, match=r"ended with code 1: .*libtvm_ffi.so cannot be loaded"),
    ):
        list(broken.measure([group]))


def test_time_is_of_one_pass_and_cold_operands_take_longer(backend, local, make_group):
    """Ten times as many matrices take about ten times as long; from memory, longer than that.

    What else the machine does can hide that once, and not five times.
    """
    problem = Problem(2, 64, 64)  # too little work to prefetch: see kernels/ahead.py
    workloads = (Workload(problem, 4), Workload(problem, 40), Workload(problem, 40, COLD))
    found = []
    for _ in range(5):
        times = []
        for workload in workloads:
            ((_, (outcome,)),) = local.measure([make_group(backend, workload, choices(""))])
            times.append(outcome.median_us)
        found.append(times)
        few, many, cold = times
        if 4 < many / few < 25 and cold > 1.1 * many:
            return
    pytest.fail(f"{found}")


def test_memory_of_the_process_does_not_grow_with_images(backend, local, make_group, tmp_path):
    group = make_group(backend, SMALL, choices("", ""))
    content = Path(group.image).read_bytes()
    sizes = []
    for number in range(60):
        image = tmp_path / f"image{number}.so"
        image.write_bytes(content)
        ((_, outcomes),) = local.measure([replace(group, image=str(image), samples=1)])
        assert all(outcome.ok for outcome in outcomes)
        process = psutil.Process(local._worker._process.pid)
        sizes.append(process.memory_info().rss)
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        assert set(re.findall(r"image\d+\.so", maps)) == {image.name}
    # An image that stays takes five pages at least.
    assert sizes[-1] - sizes[10] < 50 * mmap.PAGESIZE


def test_process_ends_itself_when_its_watcher_was_killed(backend, make_group, tmp_path):
    """In the middle of a candidate that never ends."""
    group = make_group(backend, SMALL, choices("hangs"))
    child = os.fork()
    if child == 0:
        with LocalMeasurer(deadline=1.5) as measurer:
            list(measurer.measure([group]))
        os._exit(0)
    end = time.monotonic() + 30
    running: list[psutil.Process] = []
    while time.monotonic() < end and not running:
        time.sleep(0.05)
        running = [
            process
            for process in psutil.Process(child).children()
            if group.image in Path(f"/proc/{process.pid}/maps").read_text()
        ]
    os.kill(child, 9)
    os.waitpid(child, 0)
    (worker,) = running
    worker.wait(timeout=20)
