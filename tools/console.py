"""Where the tools print to."""

from __future__ import annotations

import os

from rich.console import Console

_FILE_COLUMNS = 120


def standard_output() -> Console:
    """Standard output: as wide as the terminal or ``COLUMNS``, else wide enough for our tables."""
    console = Console()
    if console.is_terminal or "COLUMNS" in os.environ:
        return console
    return Console(width=_FILE_COLUMNS)
