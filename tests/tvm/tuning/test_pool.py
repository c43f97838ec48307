"""Calls that fail, crash or hang their process are told apart: kernels/pool.py."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures.process import BrokenProcessPool

import pytest

from tf_tvm_ops.kernels.pool import Workers


class UnreadableError(Exception):
    """Cannot be made again from what pickle keeps of it."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


def behave(item: str) -> None:
    what = item.rstrip("0123456789")
    if what == "raises":
        raise ValueError(item)
    if what == "unreadable":
        raise UnreadableError(item, "!")
    if what == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "hangs":
        time.sleep(3600)


def kinds(found) -> dict[str, str]:
    return {item: type(error).__name__ if error else "" for item, error in found}


@pytest.mark.parametrize("jobs", [1, 2])
def test_each_item_has_its_own_end(jobs):
    items = ["fine1", "dies2", "raises3", "fine4", "hangs5", "fine6", "unreadable7", "fine8"]
    with Workers(jobs, deadline=3.0) as workers:
        found = list(workers.run(behave, items))
        assert len(found) == len(items)
        ends = kinds(found)
        for item in items:
            expected = {
                "fine": {""},
                "raises": {"ValueError"},
                "dies": {"BrokenProcessPool"},
                "hangs": {"TimeoutError"},
                "unreadable": {"UnreadableError", "BrokenProcessPool"},
            }[item[:-1]]
            assert ends[item] in expected, item
        # The processes that were lost are replaced.
        assert kinds(workers.run(behave, ["fine1", "fine2"])) == {"fine1": "", "fine2": ""}


def test_processes_that_end_between_runs_are_replaced():
    with Workers(1, deadline=30.0) as workers:
        assert kinds(workers.run(behave, ["fine1"])) == {"fine1": ""}
        for process in list(workers._pool._processes.values()):
            process.kill()
            process.join()
        # The pool has seen it, and refuses calls from now on.
        end = time.monotonic() + 60
        while not workers._pool._broken and time.monotonic() < end:
            time.sleep(0.01)
        with pytest.raises(BrokenProcessPool):
            workers._pool.submit(behave, "fine1")
        assert kinds(workers.run(behave, ["fine1", "fine2"])) == {"fine1": "", "fine2": ""}


def test_nothing_runs_on_when_results_are_no_longer_wanted():
    with Workers(2, deadline=60.0) as workers:
        for _ in workers.run(behave, ["fine1", "hangs1", "hangs2"]):
            break
        assert workers._pool is None
        assert kinds(workers.run(behave, ["fine2"])) == {"fine2": ""}
