"""Where the tools print to."""

from __future__ import annotations

from rich.console import Console

_FILE_COLUMNS = 120


def standard_output() -> Console:
    """Standard output: as wide as the terminal, or wide enough for our tables in a file."""
    console = Console()
    return console if console.is_terminal else Console(width=_FILE_COLUMNS)
