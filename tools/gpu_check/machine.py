"""What was measured on: machine, software, and what there is to compare with."""

from __future__ import annotations

import os
import platform
import subprocess
from typing import Any

import numpy as np

from tf_tvm_ops.tools.gpu_check.session import one_line

_QUERY = (
    *("name", "driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem"),
    *("power.limit", "temperature.gpu", "utilization.gpu"),
)


def describe() -> dict[str, Any]:
    """Processor, versions, the state of GPUs, and which peers can be used."""
    found: dict[str, Any] = {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "system": f"{platform.system()} {platform.release()}",
        "versions": {"Python": platform.python_version(), "NumPy": np.__version__},
        "gpus": _state_of_gpus(),
        "missing": {},
    }
    for name, ask in (("PyTorch", _torch), ("Triton", _triton)):
        try:
            found["versions"][name] = ask()
        except Exception as error:
            # An ImportError most often; but whatever it is, there is nothing to compare with.
            found["missing"][name] = one_line(error)
    return found


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux: the platform has at least a word for it
    return platform.processor() or platform.machine()


def _state_of_gpus() -> list[dict[str, str]]:
    """As ``nvidia-smi`` tells it, which need not be there."""
    command = ["nvidia-smi", f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [line.split(", ") for line in done.stdout.splitlines()]
    return [dict(zip(_QUERY, row)) for row in rows]


def _torch() -> str:
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError(f"PyTorch {torch.__version__} does not see the GPU")
    return f"{torch.__version__}, for CUDA {torch.version.cuda}"


def _triton() -> str:
    from tf_tvm_ops.tools.gpu_check import triton_way

    return triton_way.version()
