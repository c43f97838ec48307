"""A process that imports TensorFlow and forks for each program it is given: see processes.py.

Requests and replies are lines of JSON on standard input and output.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from types import ModuleType
from typing import Any

import tensorflow  # noqa: F401  what the forks need not do again


def serve() -> dict[str, Any] | None:
    """Fork for each request; the forks return theirs, and this process None at the end."""
    # What is there already is no garbage: without this each fork looks at all of it at its end.
    gc.freeze()
    # Not standard input and output, which belong to the programs.
    requests, replies = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    for line in requests:
        request: dict[str, Any] = json.loads(line)
        child = os.fork()
        if not child:
            os.close(requests.fileno())
            os.close(replies.fileno())
            return request
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), file=replies, flush=True)
    return None


def become(request: dict[str, Any]) -> ModuleType:
    """Take the place of ``python -c`` with the environment and the files of a request."""
    for number, name in enumerate(("/dev/null", request["stdout"], request["stderr"])):
        opened = os.open(name, os.O_RDWR)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.update(request["environment"])
    sys.argv = ["-c"]
    sys.path[0] = ""
    sys.modules["__main__"] = main = ModuleType("__main__")
    return main


if __name__ == "__main__" and (_REQUEST := serve()) is not None:
    # Here and not in a function: at its end the process ends as any other.
    exec(compile(_REQUEST["code"], "<string>", "exec"), become(_REQUEST).__dict__)
