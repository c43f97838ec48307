"""Python in a process of its own, for what can be tried only once in a process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

_PRELUDE = """
import os
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
"""


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``code``, dedented, with these environment variables added.

    Variables of this package that the tests themselves run under are not passed on.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TF_TVM_OPS_")}
    return subprocess.run(
        [sys.executable, "-c", _PRELUDE + textwrap.dedent(code)],
        env={**inherited, **environment},
        # Not the project's folder, where a part of the package would hide the whole.
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def output_of(code: str, **environment: str) -> str:
    """What ``code`` printed; it must end well."""
    done = run_python(code, **environment)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


def own_messages(stderr: str) -> list[str]:
    """The lines that this package wrote."""
    return [line for line in stderr.splitlines() if line.startswith("tf_tvm_ops:")]
