"""The oracle check of GPU kernels, on the CPU.

Kernels run in a process of their own, started with AddressSanitizer where that is asked for, once
with the first thread of a block first and once with the last one first.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import build
from ..cuda.image import link_image
from ..problem import Problem
from .build import DeviceCode, compile_emulated

DEADLINE_SECONDS = 120.0

_OPTIMIZE = 200_000
"""Multiply-adds of a product above which optimising its kernel takes less time than it saves."""


@dataclass(frozen=True)
class Candidate:
    """A kernel to check.

    Attributes
    ----------
    symbol
        Name of the launching function.
    problem
        What it computes.
    cuda
        The kernel it launches, ``<symbol>_kernel``, in CUDA C++.
    host
        Object code of the launching function.
    """

    symbol: str
    problem: Problem
    cuda: str
    host: bytes


def check(
    candidates: Sequence[Candidate],
    *,
    sanitize: bool = False,
    folder: Path | None = None,
    deadline: float = DEADLINE_SECONDS,
) -> list[str]:
    """Check kernels against the oracle on the emulator.

    Parameters
    ----------
    candidates
        Kernels with distinct symbols.
    sanitize
        Whether to check every access to memory; compiling then takes twice as long.
    folder
        For temporary files; the system's if None.
    deadline
        Seconds for one kernel. One that does not end has a fault, and the others are run again.

    Returns
    -------
    list of str
        What is wrong with each kernel, ``""`` where nothing is.

    Raises
    ------
    BuildError
        If the C++ compiler fails.
    """
    with tempfile.TemporaryDirectory(prefix="tf-tvm-ops-emulate-", dir=folder) as name:
        work = Path(name)
        hosts = []
        for index, candidate in enumerate(candidates):
            hosts.append(work / f"{index}.o")
            hosts[-1].write_bytes(candidate.host)
        link_image(hosts, [], work / "host.so")
        code = [DeviceCode(f"{c.symbol}_kernel", c.cuda) for c in candidates]
        optimize = any(c.problem.multiply_adds > _OPTIMIZE for c in candidates)
        compile_emulated(code, work / "device.so", sanitize=sanitize, optimize=optimize)
        faults: dict[str, str] = {}
        while len(faults) < len(candidates):
            left = [c for c in candidates if c.symbol not in faults]
            faults |= _run(work, left, sanitize, deadline)
    return [faults[c.symbol] for c in candidates]


def _run(
    work: Path, candidates: Sequence[Candidate], sanitize: bool, deadline: float
) -> dict[str, str]:
    """Faults of the first of ``candidates``: of all, or up to one that ends the process."""
    entries = json.dumps([[c.symbol, c.problem.to_json()] for c in candidates])
    environment = dict(os.environ)
    # The child finds the package as this process did.
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    if sanitize:
        # Leaks are Python's; the rest is said in the report.
        options = "detect_leaks=0:alloc_dealloc_mismatch=0:detect_odr_violation=0"
        environment["ASAN_OPTIONS"] = options
        environment["LD_PRELOAD"] = _sanitizer()
    status, output, errors = _output(work, entries, environment, deadline)
    faults: dict[str, str] = {}
    for line in output.splitlines():
        if line.startswith("{"):
            faults |= json.loads(line)
    if len(faults) == len(candidates):
        return faults
    if not faults and "begun" not in output:
        tail = errors.strip().splitlines()[-1:] or [f"exit status {status}"]
        raise build.BuildError(f"the emulator did not start: {tail[0]}")
    faults[candidates[len(faults)].symbol] = _explain(status, errors)
    return faults


def _output(
    work: Path, entries: str, environment: dict[str, str], deadline: float
) -> tuple[int | None, str, str]:
    """Exit status (None if a kernel passed its deadline), output and errors of the process."""
    with (
        tempfile.TemporaryFile("w+", dir=work) as output,
        tempfile.TemporaryFile("w+", dir=work) as errors,
    ):
        status = subprocess.run(
            [sys.executable, "-m", "tf_tvm_ops.kernels.emulate.run", str(work), str(deadline)],
            input=entries,
            stdout=output,
            stderr=errors,
            text=True,
            env=environment,
            check=False,
        ).returncode
        output.seek(0)
        errors.seek(0)
        stopped = status == -signal.SIGALRM
        return None if stopped else status, output.read(), errors.read()


def _explain(status: int | None, errors: str) -> str:
    """One line about a process that a kernel ended, or did not let end."""
    if status is None:
        return "did not end before the deadline"
    for line in errors.splitlines():
        if "ERROR: AddressSanitizer" in line or "runtime error:" in line:
            return line.split("ERROR: ")[-1].strip()
    return f"ended the process that ran it (status {status})"


def _sanitizer() -> str:
    """The compiler's AddressSanitizer, to be loaded before everything else.

    Raises
    ------
    BuildError
        If the compiler has none.
    """
    names = []
    for library in ("libasan.so", "libubsan.so"):
        command = [build.linker(), f"-print-file-name={library}"]
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        if not os.path.isabs(found):
            raise build.BuildError(f"{command[0]} has no {library}: install it, or check without")
        names.append(found)
    return " ".join(names)
