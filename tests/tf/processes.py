"""Python in a process of its own, for what can be tried only once in a process."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
TIMEOUT = 300

_PRELUDE = """
import os
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
"""

# Variables that TensorFlow and the loader of libraries read before a program does anything.
_READ_AT_START = ("TF_", "LD_", "PYTHON", "XLA_")
_OURS = "TF_TVM_OPS_"


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``code``, dedented, with these environment variables added.

    Variables of this package that the tests themselves run under are not passed on.
    """
    return subprocess.run(
        [sys.executable, "-c", _PRELUDE + textwrap.dedent(code)],
        env={**_inherited(), **environment},
        # Not the project's folder, where a part of the package would hide the whole.
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


def run_with_tensorflow(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The same where TensorFlow is imported already, which takes seconds.

    The process is the fork of one that did nothing else: nothing of this package is loaded, and no
    device, pool of threads or graph has been made.
    """
    at_start = {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_AT_START) and not name.startswith(_OURS)
    }
    later = {name: value for name, value in environment.items() if name not in at_start}
    return _forking(frozenset(at_start.items())).run(textwrap.dedent(code), later)


def output_of(code: str, **environment: str) -> str:
    """What ``code`` printed; it must end well."""
    return _output(run_python(code, **environment))


def output_with_tensorflow(code: str, **environment: str) -> str:
    """The same where TensorFlow is imported already: see `run_with_tensorflow`."""
    return _output(run_with_tensorflow(code, **environment))


def own_messages(stderr: str) -> list[str]:
    """The lines that this package wrote."""
    return [line for line in stderr.splitlines() if line.startswith("tf_tvm_ops:")]


def _output(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


def _inherited() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}


class _Forking:
    """A process of ``forks.py``, which ends when this one does, however that ends."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, HERE / "forks.py"],
            env={"TF_CPP_MIN_LOG_LEVEL": "2", **_inherited(), **environment},
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # to be ended together with a fork that does not end
        )
        atexit.register(self._end)

    def _end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def run(self, code: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run code in a fork."""
        with tempfile.TemporaryDirectory() as folder:
            stdout, stderr = (Path(folder, name) for name in ("stdout", "stderr"))
            stdout.touch()
            stderr.touch()
            files = {"stdout": str(stdout), "stderr": str(stderr)}
            request = json.dumps({"code": code, "environment": environment, **files})
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(f"{request}\n".encode())
            self._process.stdin.flush()
            if not select.select([self._process.stdout], [], [], TIMEOUT)[0]:
                _forking.cache_clear()
                os.killpg(self._process.pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(
                    code, TIMEOUT, stdout.read_bytes(), stderr.read_bytes()
                )
            reply = self._process.stdout.readline()
            if not reply:
                _forking.cache_clear()
                raise RuntimeError(f"forks.py ended with status {self._process.wait()}")
            returncode = int(reply)
            return subprocess.CompletedProcess(
                code, returncode, stdout.read_text(), stderr.read_text()
            )


@cache
def _forking(environment: frozenset[tuple[str, str]]) -> _Forking:
    return _Forking(dict(environment))
