"""Times several things that a GPU does, in turns, by events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .cuda import Context, Stream  # a copy of this module alone is given them


def time_in_turns(
    context: Context,
    stream: Stream,
    runs: Sequence[Callable[[], object]],
    rounds: int,
    before: Callable[[], object] = lambda: None,
) -> list[list[float]]:
    """Microseconds that each of ``runs`` takes in each round; all take turns.

    Parameters
    ----------
    context, stream
        Where the runs enqueue their work.
    runs
        Enqueue something: ``lambda: graph.launch(stream)``, say.
    rounds
        How often each is measured, after one round that is not.
    before
        Called before each run, to empty a cache, say.

    Returns
    -------
    list of list of float
        A list for each of ``runs``.
    """
    times: list[list[float]] = [[] for _ in runs]
    with context.event() as start, context.event() as end:
        for number in range(rounds + 1):
            for run, found in zip(runs, times):
                before()
                start.record(stream)
                run()
                end.record(stream)
                end.synchronize()
                if number:
                    found.append(end.microseconds_since(start))
    return times
