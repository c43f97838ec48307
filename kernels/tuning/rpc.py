"""Measuring on other machines: RPC servers of TVM, which a tracker hands out by a key.

On each machine: ``python -m tvm.exec.rpc_server --tracker HOST:PORT --key KEY``; somewhere:
``python -m tvm.exec.rpc_tracker``. A group goes to one machine, in a session of its own; as many
groups are under way as there are machines. A session that ends before its group is done (a machine
that fails, a network that does) costs no more than time: the group goes to another one.
"""

from __future__ import annotations

import math
import queue
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm
import tvm.rpc

from .measurer import Group, MeasureError, Outcome
from .record import CRASHED, OK, TIMED_OUT
from .remote import SLOTS, Remote, compile_helper

DEADLINE_SECONDS = 60.0
"""For a group; a server ends a session that takes longer."""

_CALL_SHARE = 0.25
"""Of the deadline, for one call of a candidate while it is checked."""

_GIVEN_UP = 2.0
"""Deadlines after which a session is given up that the server should have ended."""

_STRIKES = 2
"""Sessions that end while they run a candidate, before it is blamed rather than the machine."""

_FAILURES = 5
"""Sessions of a group that end while they run none of its candidates, before the search does."""

_POLL_SECONDS = 0.05


class RpcMeasurer(AbstractContextManager["RpcMeasurer"]):
    """See :class:`~.measurer.Measurer`. Close it, or use it in a ``with``.

    Parameters
    ----------
    tracker_host, tracker_port
        Where the tracker listens.
    key
        What kind of machine is asked for.
    deadline
        Seconds for a group.
    patience
        Seconds to wait for a machine while the tracker has none of that kind.
    cold_bytes
        Operands of a cold workload make up this size: twice the largest cache, or more.

    Attributes
    ----------
    machine
        The key, and the processor of the machines behind it.

    Raises
    ------
    MeasureError
        If the tracker does not answer, or has no such machine.
    BuildError
        If there is no C++ compiler here.
    """

    def __init__(
        self,
        tracker_host: str,
        tracker_port: int,
        key: str,
        *,
        deadline: float = DEADLINE_SECONDS,
        patience: float = 15.0,
        cold_bytes: int = 256 << 20,
    ) -> None:
        self._key = key
        self._deadline = deadline
        self._cold_bytes = cold_bytes
        self._tracker = _Tracker(tracker_host, tracker_port, key, patience)
        self._folder = tempfile.TemporaryDirectory(prefix="tf-tvm-ops-rpc-")
        self._helper = Path(self._folder.name, "helper.so")
        try:
            compile_helper(self._helper)
            self._processor = self._ask_processor()
        except BaseException:
            self._folder.cleanup()
            raise
        self.machine = f"{key}: {self._processor}"

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove what was made on disk. Sessions end with their groups."""
        self._folder.cleanup()

    def measure(self, groups: Sequence[Group]) -> Iterator[tuple[Group, list[Outcome]]]:
        """See :class:`~.measurer.Measurer`."""
        jobs: queue.Queue[_Job] = queue.Queue()
        for group in groups:
            if len(group.trials) > SLOTS:
                raise ValueError(f"{len(group.trials)} candidates, expected {SLOTS} at most")
            jobs.put(_Job(group))
        if not groups:
            return
        results: queue.Queue[_Job | BaseException] = queue.Queue()
        stop = threading.Event()
        lanes = [self._lane(jobs, results, stop) for _ in range(self._tracker.count())]
        left = len(groups)
        try:
            while left:
                try:
                    result = results.get(timeout=1.0)
                except queue.Empty:
                    lanes = [self._watched(lane, jobs, results, stop) for lane in lanes]
                    continue
                if isinstance(result, BaseException):
                    raise result
                left -= 1
                yield result.group, result.outcomes()
        finally:
            stop.set()

    def _lane(self, jobs: Any, results: Any, stop: threading.Event) -> _Lane:
        lane = _Lane()
        arguments = (lane, jobs, results, stop)
        threading.Thread(target=self._serve, args=arguments, daemon=True).start()
        return lane

    def _watched(self, lane: _Lane, jobs: Any, results: Any, stop: threading.Event) -> _Lane:
        """The lane, or another one in its place if its machine is silent: see ``_GIVEN_UP``."""
        with lane.lock:
            job, since = lane.job, lane.since
            if job is None or time.monotonic() - since < _GIVEN_UP * self._deadline + 10:
                return lane
            lane.abandoned = True
        jobs.put(job.without_session("its machine does not answer any more"))
        return self._lane(jobs, results, stop)

    def _serve(self, lane: _Lane, jobs: Any, results: Any, stop: threading.Event) -> None:
        """Take jobs until there is nothing left to do, each to a machine."""
        while not stop.is_set() and not lane.abandoned:
            try:
                job = jobs.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            try:
                session = self._tracker.session(self._deadline, stop)
                if session is None:
                    return
                with lane.lock:
                    lane.job, lane.since = job, time.monotonic()
                after = self._run(session, job)
                with lane.lock:
                    if lane.abandoned:
                        return
                    lane.job = None
                (results if after.done else jobs).put(after)
            except BaseException as error:  # whoever asked for results has to hear of it
                results.put(error)
                return

    def _run(self, session: Any, job: _Job) -> _Job:
        """What is known of the group after a session."""
        start = time.monotonic()
        progress = _Job(job.group, dict(job.known), set(job.right), dict(job.strikes), job.failures)
        try:
            remote = Remote(session, self._helper)
            self._same_processor(remote.processor())
            remote.load(job.group)
            self._check_and_time(remote, progress)
        except (RuntimeError, OSError) as error:
            if isinstance(error, MeasureError):
                raise
            now = time.monotonic()
            late = isinstance(error, TimeoutError) or now - start >= self._deadline
            hung = late and now - progress.since > self._deadline / 2
            lines = str(error).strip().splitlines() or [type(error).__name__]
            return progress.without_session(lines[-1], late=late, hung=hung)
        finally:
            _end(session)
        return progress

    def _check_and_time(self, remote: Remote, job: _Job) -> None:
        group = job.group
        seconds = max(1, math.ceil(_CALL_SHARE * self._deadline))
        # Suspects last: the others are done before a session ends once more.
        for slot in sorted(job.unchecked(), key=lambda slot: job.strikes.get(slot, 0)):
            job.starts(slot)
            outcome = remote.check(slot, group.trials[slot], group.workload.problem, seconds)
            if outcome.ok:
                job.right.add(slot)
            else:
                job.known[slot] = outcome
        right = sorted(job.right)
        if right:
            times = remote.time(group, right, self._cold_bytes, job.starts)
            for slot, found in zip(right, times):
                job.known[slot] = Outcome(OK, found.median_us, found.spread_us)

    def _ask_processor(self) -> str:
        session = self._tracker.session(self._deadline, threading.Event())
        try:
            return Remote(session, self._helper).processor()
        except (RuntimeError, OSError) as error:
            raise MeasureError(
                f"a machine with key {self._key!r} does not run what it is sent: {error}; expected "
                "a server of the same version of TVM on x86-64"
            ) from error
        finally:
            _end(session)

    def _same_processor(self, processor: str) -> None:
        if processor != self._processor:
            raise MeasureError(
                f"machines with key {self._key!r} differ: {self._processor} and {processor}; "
                "times of one are none of the other: give them keys of their own"
            )


@dataclass
class _Job:
    """A group, and how far it has come over several sessions.

    Attributes
    ----------
    known
        Outcomes by place in the group.
    right
        Candidates that were checked.
    strikes
        How many sessions have ended while they ran a candidate.
    failures
        How many have ended while they ran none.
    current, since
        The candidate that is run, and from when.
    """

    group: Group
    known: dict[int, Outcome] = field(default_factory=dict)
    right: set[int] = field(default_factory=set)
    strikes: dict[int, int] = field(default_factory=dict)
    failures: int = 0
    current: int | None = None
    since: float = 0.0

    @property
    def done(self) -> bool:
        return len(self.known) == len(self.group.trials)

    def outcomes(self) -> list[Outcome]:
        return [self.known[slot] for slot in range(len(self.group.trials))]

    def unchecked(self) -> list[int]:
        slots = range(len(self.group.trials))
        return [slot for slot in slots if slot not in self.right and slot not in self.known]

    def starts(self, slot: int) -> None:
        if slot != self.current:
            self.current, self.since = slot, time.monotonic()

    def without_session(self, message: str, *, late: bool = False, hung: bool = False) -> _Job:
        """The job after its session has ended early.

        Parameters
        ----------
        message
            Of the error.
        late
            Whether the server ended it, since it took too long.
        hung
            Whether that is because of the current candidate.
        """
        slot, self.current = self.current, None
        if slot is None:
            self.failures += 1
            if self.failures >= _FAILURES:
                raise MeasureError(
                    f"no machine measures {self.group.workload.problem}: {self.failures} sessions "
                    f"failed, the last one with: {message}"
                )
            return self
        self.strikes[slot] = self.strikes.get(slot, 0) + 1
        if hung or self.strikes[slot] >= _STRIKES:
            self.known[slot] = Outcome(TIMED_OUT if late else CRASHED, message=message)
            self.right.discard(slot)
        return self


class _Lane:
    """What one thread is doing."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.job: _Job | None = None
        self.since = 0.0
        self.abandoned = False


class _Tracker:
    """Hands out sessions with machines of one kind."""

    def __init__(self, host: str, port: int, key: str, patience: float) -> None:
        self._address = (host, port)
        self._key = key
        self._patience = patience
        self._lock = threading.Lock()

    def __str__(self) -> str:
        return f"{self._address[0]}:{self._address[1]}"

    def count(self) -> int:
        """Machines of the kind; 1 if there is none, which may come."""
        servers, _, _ = self._look()
        return max(1, servers)

    def session(self, timeout: float, stop: threading.Event) -> Any:
        """A session with a machine once one is free; None if ``stop`` is set before.

        Raises
        ------
        MeasureError
            If there is no machine of the kind for longer than it is waited for.
        """
        seen = time.monotonic()
        while not stop.is_set():
            # A request that has to wait cannot be taken back: none is made unless one is free.
            with self._lock:
                servers, free, others = self._look()
                if free:
                    with suppress(RuntimeError, OSError):
                        return self._connected().request(
                            self._key, session_timeout=timeout, max_retry=1
                        )
            now = time.monotonic()
            if servers:
                seen = now
            elif now - seen > self._patience:
                has = f"it has {others}" if others else "it has none at all"
                raise MeasureError(
                    f"no machine with key {self._key!r} at tracker {self} for "
                    f"{self._patience:g} s: {has}; start one: python -m tvm.exec.rpc_server "
                    f"--tracker {self} --key {self._key}"
                )
            time.sleep(_POLL_SECONDS)
        return None

    def _look(self) -> tuple[int, int, str]:
        """Machines of the kind, how many are free, and what else there is."""
        summary = self._connected().summary()
        keys = [str(server["key"]).partition(":")[2] for server in summary["server_info"]]
        free = int(summary["queue_info"].get(self._key, {}).get("free", 0))
        others = sorted(set(keys) - {self._key})
        return keys.count(self._key), free, ", ".join(f"{k} ({keys.count(k)})" for k in others)

    def _connected(self) -> Any:
        try:
            # TVM's own connecting goes on for a minute where nothing listens.
            socket.create_connection(self._address, timeout=5.0).close()
            return tvm.rpc.connect_tracker(*self._address)
        except (RuntimeError, OSError) as error:
            raise MeasureError(
                f"no tracker of TVM answers at {self}: {error}; start one: "
                f"python -m tvm.exec.rpc_tracker --port {self._address[1]}"
            ) from error


def _end(session: Any) -> None:
    """Free the machine at once, not when the last thing that lies there is forgotten."""
    with suppress(RuntimeError, OSError):
        session.get_function("CloseRPCConnection")()
