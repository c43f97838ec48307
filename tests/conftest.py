"""Options of the tests."""

from __future__ import annotations

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
    settings.register_profile("tests", max_examples=100, deadline=None, derandomize=True)
    settings.load_profile("tests")
    if config.option.cases:
        # Other examples each time.
        settings.register_profile("many", max_examples=config.option.cases, deadline=None)
        settings.load_profile("many")


LEFT_OUT = pytest.StashKey[dict[str, int]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[LEFT_OUT] = {}
    for mark in MARKS:
        marked = [item for item in items if item.get_closest_marker(mark)]
        if marked and not config.getoption(mark):
            config.stash[LEFT_OUT][mark] = len(marked)
            config.hook.pytest_deselected(items=marked)
            items[:] = [item for item in items if item not in marked]


def pytest_sessionfinish(session: pytest.Session) -> None:
    # Tests beside each other: what a process left out is told by the one that started it.
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["left_out"] = session.config.stash.get(LEFT_OUT, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    # A process that crashed has none; what it was to run, another one does.
    if (left_out := getattr(node, "workeroutput", {}).get("left_out")) is not None:
        node.config.stash[LEFT_OUT] = left_out


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for mark, count in config.stash.get(LEFT_OUT, {}).items():
        terminalreporter.write_line(
            f"left out: {count} tests that need {MARKS[mark]}; run them with --{mark}"
        )
