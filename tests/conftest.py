"""Options of the tests."""

from __future__ import annotations

import pytest
from hypothesis import settings


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cases",
        type=int,
        help="Random examples of each test with Hypothesis that sets no number of its own.",
    )
    parser.addoption(
        "--large",
        action="store_true",
        help="Also run the tests that need 16 GB of memory.",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "large: needs 16 GB of memory; run with --large")
    settings.register_profile("tests", max_examples=100, deadline=None, derandomize=True)
    settings.load_profile("tests")
    if config.option.cases:
        # Other examples each time.
        settings.register_profile("many", max_examples=config.option.cases, deadline=None)
        settings.load_profile("many")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.large:
        return
    large = [item for item in items if item.get_closest_marker("large")]
    if large:
        config.hook.pytest_deselected(items=large)
        items[:] = [item for item in items if item not in large]
