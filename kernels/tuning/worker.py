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

import tvm_ffi

from ..targets import request_tiles
from ..verify import verify_kernel
from .measurer import Group
from .record import OK, WRONG
from .timing import Operands, measure


def main() -> None:
    """``worker CORE COLD_BYTES SECONDS``: pinned to a core, until standard input ends.

    Ends by itself when a candidate takes ``SECONDS``: who watches it may have been killed.
    """
    core, cold_bytes, seconds = map(int, sys.argv[1:])
    # What a library prints must not get between the lines.
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    os.sched_setaffinity(0, {core})
    request_tiles()
    image, module = "", None
    for line in sys.stdin:
        group = Group.from_json(json.loads(line))

        def say(**fields: Any) -> None:
            # By a signal whose handler is the system's: a kernel lets no other code run.
            signal.alarm(0 if "outcomes" in fields else seconds)
            print(json.dumps(fields), file=answers)

        if group.image != image:
            # The last one is unloaded: memory must not grow with the number of candidates.
            module = None
            module = tvm_ffi.load_module(group.image, keep_module_alive=False)
            image = group.image
        _run(module, group, cold_bytes, say)


def _run(module: Any, group: Group, cold_bytes: int, say: Any) -> None:
    problem = group.workload.problem
    outcomes: list[Any] = [None] * len(group.trials)
    for index, trial in enumerate(group.trials):
        say(starting=index)
        fault = verify_kernel(module, trial.symbol, problem, trial.workspace_bytes)
        if fault:
            outcomes[index] = {"status": WRONG, "message": fault}
    right = [index for index, outcome in enumerate(outcomes) if outcome is None]
    if right:
        workspace = max(group.trials[index].workspace_bytes for index in right)
        operands = Operands(group.workload, workspace, cold_bytes)
        times = measure(
            [module.get_function(group.trials[index].symbol) for index in right],
            operands,
            group.samples,
            started=lambda place: say(starting=right[place]),
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
