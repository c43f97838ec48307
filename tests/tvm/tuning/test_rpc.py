"""Candidates are checked and timed on other machines, some of which fail: kernels/tuning/rpc.py.

The other machines are servers of TVM on this one, as are those who use them know them.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tf_tvm_ops.kernels.problem import DTYPES, Problem
from tf_tvm_ops.kernels.schedules import Choice
from tf_tvm_ops.kernels.tuning import machine, rpc
from tf_tvm_ops.kernels.tuning.backend import CpuBackend
from tf_tvm_ops.kernels.tuning.measurer import Group, MeasureError
from tf_tvm_ops.kernels.tuning.record import CRASHED, OK, TIMED_OUT, WRONG
from tf_tvm_ops.kernels.tuning.rpc import RpcMeasurer
from tf_tvm_ops.kernels.tuning.workload import COLD, Workload

from .conftest import SMALL
from .faulty import RULE, FaultyBackend, FaultyConfig

HOST = "127.0.0.1"


class Process:
    """A program of TVM, and all that it starts."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-m", f"tvm.exec.{module}", "--host", HOST, *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def port(self) -> int:
        """Where it listens."""
        for line in self._popen.stderr:
            found = re.search(rf"bind to {HOST}:(\d+)", line)
            if found:
                threading.Thread(target=self._popen.stderr.read, daemon=True).start()
                return int(found[1])
        raise AssertionError("it ended")

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()


@pytest.fixture(scope="module")
def tracker() -> Iterator[int]:
    first = _ports(29000)
    process = Process("rpc_tracker", "--port", str(first), "--port-end", str(first + 100))
    yield process.port()
    process.kill()


def _ports(first: int) -> int:
    """The first of a hundred ports that no other process running these tests uses."""
    return first + 100 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


class Servers:
    """Starts servers for the tracker, and ends them."""

    def __init__(self, tracker: int) -> None:
        self._tracker = tracker
        self._started: list[Process] = []

    def __call__(self, key: str, number: int) -> list[Process]:
        """So many servers with a key, which the tracker knows then."""
        first = _ports(30000)
        ports = ("--port", str(first), "--port-end", str(first + 100))
        arguments = (*ports, "--key", key)
        known = rpc._Tracker(HOST, self._tracker, key, patience=0.0)
        servers: list[Process] = []
        deadline = time.monotonic() + 120
        for _ in range(number):
            # One after the other: two that start together may take the same port.
            server = Process("rpc_server", *arguments, "--tracker", f"{HOST}:{self._tracker}")
            self._started.append(server)
            servers.append(server)
            server.port()
            # It listens before it tells the tracker.
            while known._look()[0] < len(servers):
                assert time.monotonic() < deadline, "the tracker does not hear of it"
                time.sleep(0.02)
        return servers

    def end(self) -> None:
        for process in self._started:
            process.kill()


@pytest.fixture(scope="module")
def two(tracker) -> Iterator[str]:
    """The key of two servers that no test ends."""
    servers = Servers(tracker)
    servers("two", 2)
    yield "two"
    servers.end()


@pytest.fixture
def serve(tracker) -> Iterator[Servers]:
    servers = Servers(tracker)
    yield servers
    servers.end()


def choices(*faults: str) -> list[Choice]:
    return [Choice(RULE, FaultyConfig(fault, number)) for number, fault in enumerate(faults)]


@pytest.fixture
def backend(fast_target, cache):
    return FaultyBackend(fast_target, cache, [])


def test_times_agree_with_those_taken_here(tracker, two, fast_target, cache, local, make_group):
    """For every type, hot and cold, with a workspace and without."""
    backend = CpuBackend(fast_target, cache)
    workloads = [Workload(Problem(9, 20, 16, dtype=dtype), 40) for dtype in DTYPES]
    workloads += [Workload(Problem(8, 32, 32, rhs="k"), 64, COLD), SMALL]
    groups = []
    for workload in workloads:
        if workload.problem.dtype in fast_target.dtypes:
            space = [c.choice for c in backend.space(workload.problem)]
            groups.append(make_group(backend, workload, [space[0], space[-1]]))
    here = {group.workload: outcomes for group, outcomes in local.measure(groups)}
    with RpcMeasurer(HOST, tracker, two, cold_bytes=64 << 20) as remote:
        assert remote.machine == f"two: {machine.processor()}"
        there = {group.workload: outcomes for group, outcomes in remote.measure(groups)}
    assert here.keys() == there.keys()
    for workload, outcomes in there.items():
        for mine, theirs in zip(here[workload], outcomes):
            assert (mine.status, theirs.status) == (OK, OK)
            # In the order of magnitude: others may be using the same cores.
            assert 1 / 10 < theirs.median_us / mine.median_us < 10, workload


def test_faults_are_told_apart_and_the_servers_live(tracker, two, backend, make_group):
    faults = ("", "wrong", "crashes", "", "hangs", "")
    groups = [make_group(backend, SMALL, choices(*faults))]
    groups.append(make_group(backend, Workload(Problem(3, 5, 6), 4), choices("", "")))
    with RpcMeasurer(HOST, tracker, two, deadline=8.0) as remote:
        found = dict(remote.measure(groups))
        assert remote._tracker.count() == 2
    outcomes, fine = found[groups[0]], found[groups[1]]
    expected = {"": OK, "wrong": WRONG, "crashes": CRASHED, "hangs": TIMED_OUT}
    assert [outcome.status for outcome in outcomes] == [expected[fault] for fault in faults]
    assert "results wrong" in outcomes[1].message
    assert outcomes[2].message == "ended by SIGSEGV"
    assert outcomes[4].message == "not done after 2 s"
    assert [outcome.status for outcome in fine] == [OK, OK]


def test_candidate_that_ends_its_server_is_blamed_the_second_time(
    tracker, serve, backend, make_group
):
    """Two servers are lost to it. The third one measures the others."""
    serve("deadly", 3)
    group = make_group(backend, SMALL, choices("", "ends_parent", ""))
    with RpcMeasurer(HOST, tracker, "deadly") as remote:
        ((_, outcomes),) = remote.measure([group])
    assert [outcome.status for outcome in outcomes] == [OK, CRASHED, OK]
    assert remote._tracker.count() == 1


def test_candidate_that_hangs_while_it_is_timed(tracker, two, backend, make_group):
    many = Workload(SMALL.problem, 64)
    group = make_group(backend, many, choices("", "hangs_later", ""))
    with RpcMeasurer(HOST, tracker, two, deadline=3.0) as remote:
        ((_, outcomes),) = remote.measure([group])
    assert [outcome.status for outcome in outcomes] == [OK, TIMED_OUT, OK]
    assert "session has expired" in outcomes[1].message


def test_all_is_measured_although_a_machine_dies(tracker, serve, backend, make_group):
    first, _ = serve("pair", 2)
    groups = [
        make_group(backend, Workload(Problem(3, 5, k), 4), choices("", "")) for k in range(5, 11)
    ]
    with RpcMeasurer(HOST, tracker, "pair") as remote:
        done = []
        for group, outcomes in remote.measure(groups):
            assert [outcome.status for outcome in outcomes] == [OK, OK]
            done.append(group)
            if len(done) == 1:
                first.kill()
        assert remote._tracker.count() == 1
    assert sorted(map(str, done)) == sorted(map(str, groups))


def at_work(groups: Sequence[Group]) -> int:
    """On how many of the groups a server is at work now: a process of it has opened what came."""
    opened = ""
    for process in psutil.Process().children(recursive=True):
        with suppress(OSError, psutil.Error):
            if "tvm.exec.popen_worker" in process.cmdline():
                opened += Path(f"/proc/{process.pid}/maps").read_text()
    return sum(f"/{Path(group.image).name}\n" in opened for group in groups)


def test_machines_work_at_the_same_time(tracker, two, backend, make_group):
    """While both candidates hang."""
    groups = [make_group(backend, Workload(Problem(3, 5, k), 4), choices("hangs")) for k in (5, 6)]
    found, most = [], 0
    with RpcMeasurer(HOST, tracker, two, deadline=12.0) as remote:
        measuring = threading.Thread(target=lambda: found.extend(remote.measure(groups)))
        measuring.start()
        while measuring.is_alive():
            most = max(most, at_work(groups))
            measuring.join(0.05)
    assert [outcomes[0].status for _, outcomes in found] == [TIMED_OUT, TIMED_OUT]
    assert most == 2


def test_no_machine_any_more(tracker, serve, backend, make_group):
    (server,) = serve("only", 1)
    group = make_group(backend, SMALL, choices(""))
    with RpcMeasurer(HOST, tracker, "only", patience=0.5) as remote:
        server.kill()
        with pytest.raises(MeasureError, match="no machine with key 'only'"):
            list(remote.measure([group]))


def test_no_machine_of_that_key(tracker, two):
    with pytest.raises(MeasureError) as error:
        RpcMeasurer(HOST, tracker, "other", patience=0.1)
    assert "no machine with key 'other'" in str(error.value)
    assert "it has two (2)" in str(error.value)
    assert f"--tracker {HOST}:{tracker} --key other" in str(error.value)


def test_no_tracker():
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(MeasureError, match=rf"no tracker of TVM answers at {HOST}:{port}"):
        RpcMeasurer(HOST, port, "any")
