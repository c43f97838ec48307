"""Running candidates in this process: what a worker does, on a CPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from ..host_memory import HostMemory
from ..oracle import check_kernel
from ..problem import Problem
from ..runtime import ffi, libraries
from ..targets import request_tiles
from .measurer import Group, Trial
from .timing import Operands, Time, measure

MISSING = "symbol missing from the image"


class Engine(Protocol):
    """Checks and times the candidates of an image."""

    def load(self, image: str) -> None:
        """Open an image. The one before is closed: memory must not grow with their number."""

    def check(self, trial: Trial, problem: Problem) -> str:
        """What is wrong with a candidate, ``""`` if nothing is."""

    def time(
        self, group: Group, trials: Sequence[Trial], started: Callable[[int], None]
    ) -> list[Time]:
        """Time candidates of a group that were checked, in turns.

        ``started`` is told the index of one before it runs.
        """


class CpuEngine:
    """See :class:`Engine`.

    Parameters
    ----------
    core
        What this process is pinned to.
    cold_bytes
        Copies of a cold workload make up this size.
    folder
        With ``libtvm_ffi.so``; None for that of an installed package.
    """

    def __init__(self, core: int, cold_bytes: int, folder: str | None) -> None:
        os.sched_setaffinity(0, {core})
        request_tiles()
        self._library = ffi.Library(str(Path(folder, libraries.TVM_FFI)) if folder else None)
        self._cold_bytes = cold_bytes
        self._module: ffi.Module | None = None

    def load(self, image: str) -> None:
        """See :class:`Engine`."""
        self._module = None
        self._module = self._library.load_module(image)

    def check(self, trial: Trial, problem: Problem) -> str:
        """See :class:`Engine`."""
        try:
            function = self._function(trial)
        except AttributeError:
            return MISSING
        return check_kernel(function, problem, trial.workspace_bytes, HostMemory())

    def time(
        self, group: Group, trials: Sequence[Trial], started: Callable[[int], None]
    ) -> list[Time]:
        """See :class:`Engine`."""
        workspace = max(trial.workspace_bytes for trial in trials)
        operands = Operands(group.workload, workspace, self._cold_bytes)
        functions = [self._function(trial) for trial in trials]
        return measure(functions, operands, group.samples, started)

    def _function(self, trial: Trial) -> ffi.Function:
        assert self._module is not None, "an image is loaded first"
        return self._module.get_function(trial.symbol)


def make_engine(settings: dict[str, Any]) -> Engine:
    """The engine that a worker's settings ask for.

    Parameters
    ----------
    settings
        ``device`` (``"cpu"`` or ``"cuda"``), and what its engine takes.
    """
    device = settings["device"]
    rest = {name: value for name, value in settings.items() if name != "device"}
    if device == "cuda":
        from .gpu_engine import GpuEngine

        return GpuEngine(**rest)
    return CpuEngine(**rest)
