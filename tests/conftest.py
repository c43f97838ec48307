"""Options of the tests, and how those that run at the same time keep out of each other's way."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Tests that are left out unless an option of that name asks for them, and what they need.
MARKS = {"large": "16 GB of memory", "gpu": "an NVIDIA GPU and its driver"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cases",
        type=int,
        help="Random examples of each test with Hypothesis that sets no number of its own.",
    )
    for mark, need in MARKS.items():
        parser.addoption(
            f"--{mark}", action="store_true", help=f"Also run the tests that need {need}."
        )


def pytest_configure(config: pytest.Config) -> None:
    for mark, need in MARKS.items():
        config.addinivalue_line("markers", f"{mark}: needs {need}; run with --{mark}")
    config.addinivalue_line("markers", "alone: no other test runs meanwhile, in no process")
    # pytest-xdist sets it for its processes, and what tools print depends on it.
    os.environ.pop("COLUMNS", None)
    settings.register_profile("tests", max_examples=100, deadline=None, derandomize=True)
    settings.load_profile("tests")
    if config.option.cases:
        # Other examples each time.
        settings.register_profile("many", max_examples=config.option.cases, deadline=None)
        settings.load_profile("many")


LEFT_OUT = pytest.StashKey[dict[str, int]]()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[LEFT_OUT] = {}
    for mark in MARKS:
        marked = [item for item in items if item.get_closest_marker(mark)]
        if marked and not config.getoption(mark):
            config.stash[LEFT_OUT][mark] = len(marked)
            config.hook.pytest_deselected(items=marked)
            items[:] = [item for item in items if item not in marked]


def pytest_sessionfinish(session: pytest.Session) -> None:
    # The processes of pytest-xdist collect tests, and the one that reports does not.
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash.get(LEFT_OUT, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    if left_out := getattr(node, "workeroutput", {}).get("left_out"):
        node.config.stash[LEFT_OUT] = left_out


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for mark, count in config.stash.get(LEFT_OUT, {}).items():
        terminalreporter.write_line(
            f"left out: {count} tests that need {MARKS[mark]}; run them with --{mark}"
        )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let a test that is marked ``alone`` wait for all others, and those for it.

    By locks on two files that every process has: one who runs, and one who is next, so that
    nobody waits forever.
    """
    how = fcntl.LOCK_EX if item.get_closest_marker("alone") else fcntl.LOCK_SH
    here = Path(__file__)
    with here.open() as running, here.with_name("__init__.py").open() as next_one:
        fcntl.flock(next_one, how)
        fcntl.flock(running, how)
        fcntl.flock(next_one, fcntl.LOCK_UN)
        try:
            return (yield)
        finally:
            # A process that the test forked may have the file open still.
            fcntl.flock(running, fcntl.LOCK_UN)
