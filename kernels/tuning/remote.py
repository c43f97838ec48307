"""Checking and timing candidates on another machine, through one session of its RPC server.

The server is TVM's own. What it lacks for kernels comes with them: ``remote_call.cc``, compiled
here.
"""

from __future__ import annotations

import ctypes
import math
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi

from .. import build
from ..elements import WORKSPACE_ALIGNMENT
from ..oracle import check_kernel
from ..problem import Problem
from .measurer import Group, Outcome, Trial
from .record import CRASHED, OK, TIMED_OUT, WRONG
from .timing import Passes, Time, passes_of, pattern, summary

SLOTS = 256
"""Most candidates of a group; the twin of ``kSlots`` in ``remote_call.cc``."""

_SOURCE = Path(__file__).with_name("remote_call.cc")
_FLAGS = (
    *("-std=c++17", "-O2", "-fPIC", "-shared", "-nostdlib", "-fno-exceptions", "-fno-rtti"),
    *("-fvisibility=hidden", "-s"),
)
_BEHIND_BYTES = 4096
_CACHES = "/sys/devices/system/cpu/cpu0/cache/index{index}/{field}"


def compile_helper(library: Path) -> None:
    """Compile ``remote_call.cc`` to a shared library.

    Raises
    ------
    BuildError
        If the compiler fails.
    """
    ffi = Path(tvm_ffi.libinfo.find_libtvm_ffi())
    command = [
        *(build.linker(), *_FLAGS, *(f"-I{path}" for path in tvm_ffi.libinfo.include_paths())),
        *(str(_SOURCE), "-o", str(library)),
        *(f"-L{ffi.parent}", "-Wl,--no-as-needed", f"-l:{ffi.name}"),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        lines = (result.stderr or result.stdout).strip().splitlines() or ["no message"]
        raise build.BuildError(f"{command[0]} failed to compile {_SOURCE.name}: {lines[-1]}")


class Remote:
    """A machine behind an RPC session.

    Every method raises what TVM raises when the session or the machine is gone.

    Parameters
    ----------
    session
        Of ``tvm.rpc``.
    helper
        What :func:`compile_helper` made.
    """

    def __init__(self, session: Any, helper: Path) -> None:
        self._session = session
        self._device = session.cpu(0)
        self._helper = self._load(helper)
        self._call, self._attempt, self._bind, self._fill = (
            self._helper.get_function(name) for name in ("call", "attempt", "bind", "fill")
        )
        self._helper.get_function("prepare")()

    def processor(self) -> str:
        """Model and caches, as :func:`~.machine.processor` has them of this machine."""
        name = str(self._helper.get_function("processor")()).strip()
        caches = []
        for index in range(8):
            try:
                kind, level, size = (
                    self._read(_CACHES.format(index=index, field=field))
                    for field in ("type", "level", "size")
                )
            except tvm.error.RPCError:  # no such file
                break
            if kind != "Instruction":
                suffix = "d" if kind == "Data" else ""
                caches.append(f"L{level}{suffix} {size.replace('K', ' KiB').replace('M', ' MiB')}")
        return f"{name}; {', '.join(caches)}" if caches else name

    def _read(self, path: str) -> str:
        # Files of sysfs claim a page.
        return bytes(self._session.download(path)).rstrip(b"\0").decode(errors="replace").strip()

    def _load(self, library: Path) -> Any:
        self._session.upload(str(library), target=library.name)
        return self._session.load_module(library.name)

    def load(self, group: Group) -> None:
        """Make ready to check and time the candidates of a group."""
        image = self._load(Path(group.image))
        for slot, trial in enumerate(group.trials):
            self._bind(slot, image, trial.symbol)

    def check(self, slot: int, trial: Trial, problem: Problem, seconds: int) -> Outcome:
        """What is wrong with a candidate; an outcome without a time if nothing is.

        Parameters
        ----------
        slot
            Its place in the group.
        trial, problem
            The candidate, and what it computes.
        seconds
            What each of its calls may take.
        """
        memory = _RemoteMemory(self._upload)
        workspace = self._upload(
            np.full(max(trial.workspace_bytes, WORKSPACE_ALIGNMENT), 0xFF, np.uint8)
        )

        def run(lhs: Any, rhs: Any, addend: Any, out: Any, _: Any, *numbers: Any) -> None:
            places = [memory.tensor(pointer) for pointer in (lhs, rhs, addend, out)]
            self._try(seconds, slot, *places, workspace, *numbers)
            self._call(slot, *places, workspace, *numbers)

        try:
            fault = check_kernel(run, problem, trial.workspace_bytes, memory)
        except _EndedError as error:
            return error.outcome
        return Outcome(WRONG, message=fault) if fault else Outcome(OK)

    def _try(self, seconds: int, *arguments: Any) -> None:
        """Call in a child first, which may crash or hang."""
        ending = int(self._attempt(seconds, *arguments))
        if ending == signal.SIGALRM:
            raise _EndedError(Outcome(TIMED_OUT, message=f"not done after {seconds} s"))
        if ending > 0:
            raise _EndedError(Outcome(CRASHED, message=f"ended by {_signal_name(ending)}"))

    def _upload(self, array: npt.NDArray[Any]) -> Any:
        return tvm.runtime.tensor(array.view(np.uint8), self._device)

    def time(
        self, group: Group, slots: Sequence[int], cold_bytes: int, started: Callable[[int], None]
    ) -> list[Time]:
        """Time candidates of a group in turns: see :func:`~.timing.measure`."""
        passes = Passes.of(group.workload, cold_bytes)
        workspace = max(group.trials[slot].workspace_bytes for slot in slots)
        tensors = self._operands(passes, workspace)
        evaluate = self._helper.time_evaluator("call", self._device, number=1, repeat=1)

        def seconds(slot: int, count: int) -> float:
            started(slot)
            mean = evaluate(slot, *tensors, *passes.arguments(count)).mean
            return max(float(mean), 1e-9) / count

        counts = {}
        for slot in slots:
            if passes.copies > 1:
                counts[slot] = passes.copies
                continue
            guess = passes_of(seconds(slot, 1))
            counts[slot] = passes_of(seconds(slot, guess)) if guess > 1 else 1
        times: dict[int, list[float]] = {slot: [] for slot in slots}
        for _ in range(group.samples):
            for slot in slots:
                times[slot].append(seconds(slot, counts[slot]))
        return [summary(times[slot]) for slot in slots]

    def _operands(self, passes: Passes, workspace_bytes: int) -> list[Any]:
        content = pattern(passes.workload.problem.dtype)
        source = self._upload(content)
        tensors = []
        for count in passes.bytes().values():
            size = passes.copies * count
            tensor = tvm.runtime.empty((size,), "uint8", self._device)
            self._fill(tensor, size, source, content.size)
            tensors.append(tensor)
        workspace = np.zeros(max(workspace_bytes, WORKSPACE_ALIGNMENT), np.uint8)
        nothing = np.zeros(1, np.uint8)
        lhs, rhs, out = tensors
        return [lhs, rhs, self._upload(nothing), out, self._upload(workspace)]


class _RemoteMemory:
    """Memory of the machine: a :class:`~..oracle.Memory`. Addresses are numbers of blocks."""

    def __init__(self, upload: Callable[[npt.NDArray[Any]], Any]) -> None:
        self._upload = upload
        self._blocks: list[_RemoteBlock] = []
        self._nothing = upload(np.zeros(1, np.uint8))

    def allocate(self, shape: Sequence[int], dtype: npt.DTypeLike, *, gaps: bool) -> _RemoteBlock:
        """See :class:`~..oracle.Memory`."""
        block = _RemoteBlock(self._upload, len(self._blocks) + 1, shape, dtype)
        self._blocks.append(block)
        return block

    def tensor(self, pointer: ctypes.c_void_p) -> Any:
        """What lies at an address, or a byte where there is no operand."""
        return self._blocks[pointer.value - 1].tensor if pointer.value else self._nothing

    def wait(self) -> None:
        """Kernels are done when they return."""


class _RemoteBlock:
    """See :class:`~..oracle.Block`."""

    def __init__(
        self,
        upload: Callable[[npt.NDArray[Any]], Any],
        address: int,
        shape: Sequence[int],
        dtype: npt.DTypeLike,
    ) -> None:
        size = math.prod(shape)
        behind = math.prod(shape[2:]) + _BEHIND_BYTES // np.dtype(dtype).itemsize
        self._upload = upload
        self._data = np.zeros(size + behind, dtype)
        self.array = self._data[:size].reshape(shape)
        self.behind = self._data[size:]
        self.address = address
        self.tensor: Any = None

    def send(self) -> None:
        """Copy the arrays to the machine."""
        self.tensor = self._upload(self._data)

    def fetch(self) -> None:
        """Copy them back."""
        self._data.view(np.uint8)[:] = self.tensor.numpy()


class _EndedError(Exception):
    """A candidate ended the child that ran it."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
