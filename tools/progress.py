"""What commands that work for a while print: progress, and one line if they cannot."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

_PLAIN_INTERVAL_SECONDS = 5.0


class BadInput(click.ClickException):
    """One line to standard error, and the exit code of a wrong command line."""

    exit_code = 2


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each step on a terminal, a line now and then elsewhere."""
    if not sys.stdout.isatty():
        yield _plain()
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    with Progress(
        TextColumn("{task.description:20}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    ) as bars:
        tasks: dict[str, TaskID] = {}

        def report(step: str, done: int, total: int) -> None:
            if not total:
                return
            if step not in tasks:
                tasks[step] = bars.add_task(step, total=total)
            bars.update(tasks[step], completed=done)

        yield report


def _plain() -> Callable[[str, int, int], None]:
    last_step, last_time = "", 0.0

    def report(step: str, done: int, total: int) -> None:
        nonlocal last_step, last_time
        now = time.monotonic()
        due = step != last_step or now - last_time >= _PLAIN_INTERVAL_SECONDS
        if total and (due or done == total):
            click.echo(f"{step}: {done} of {total}")
            last_step, last_time = step, now

    return report
