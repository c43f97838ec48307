"""The process that runs candidates, which may crash or hang it.

It reads a group in JSON from each line of its standard input, and says in JSON lines what it is
about to do and then what came of it: see :mod:`.local`, which starts and watches it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from .engine import Engine, make_engine
from .measurer import Group
from .record import OK, WRONG


def main() -> None:
    """``worker SETTINGS``: until standard input ends.

    Settings are JSON: ``seconds``, and those of the engine. It ends by itself when a candidate
    takes ``seconds``: who watches it may have been killed.
    """
    settings = json.loads(sys.argv[1])
    seconds = settings.pop("seconds")
    # What a library prints must not get between the lines.
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    engine = make_engine(settings)
    image = ""

    def say(**fields: Any) -> None:
        # By a signal whose handler is the system's: a kernel lets no other code run.
        signal.alarm(0 if "outcomes" in fields else seconds)
        print(json.dumps(fields), file=answers)

    for line in sys.stdin:
        group = Group.from_json(json.loads(line))
        if group.image != image:
            engine.load(group.image)
            image = group.image
        _run(engine, group, say)


def _run(engine: Engine, group: Group, say: Any) -> None:
    outcomes: list[Any] = [None] * len(group.trials)
    for index, trial in enumerate(group.trials):
        say(starting=index)
        fault = engine.check(trial, group.workload.problem)
        if fault:
            outcomes[index] = {"status": WRONG, "message": fault}
    right = [index for index, outcome in enumerate(outcomes) if outcome is None]
    if right:
        times = engine.time(
            group,
            [group.trials[index] for index in right],
            lambda place: say(starting=right[place]),
        )
        for index, time in zip(right, times):
            outcomes[index] = {
                "status": OK,
                "median_us": time.median_us,
                "spread_us": time.spread_us,
            }
    say(outcomes=outcomes)


if __name__ == "__main__":
    main()
