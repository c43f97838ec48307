"""NVIDIA's assembler, from its Python package: PTX in, machine code and its resources out."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from .packages import CompilerError, Tool

TOOL = Tool("assembler", "nvidia-cuda-nvcc-cu12", "cuda_nvcc/bin/ptxas")


@dataclass(frozen=True)
class Resources:
    """What one block of a kernel takes of its multiprocessor.

    Attributes
    ----------
    registers
        Of a thread.
    shared_bytes
        Of a block.
    stack_bytes
        Of a thread, in memory: arrays that could not be kept in registers, and spills.
    spill_bytes
        Of a thread, written to memory for want of registers.
    """

    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_bytes: int

    @property
    def spills(self) -> bool:
        """Whether the kernel keeps in memory what belongs into registers."""
        return self.stack_bytes > 0 or self.spill_bytes > 0

    def to_json(self) -> dict[str, int]:
        """As a manifest has it."""
        return asdict(self)


def assemble(ptx: bytes, arch: str) -> tuple[bytes, Resources]:
    """Assemble a kernel.

    Parameters
    ----------
    ptx
        One kernel, in text.
    arch
        As the assembler has it: ``sm_80``.

    Returns
    -------
    tuple of bytes and Resources
        The machine code (a "cubin"), and what it takes.

    Raises
    ------
    CompilerError
        If the assembler is not installed, or does not take the code or the architecture.
    """
    with tempfile.TemporaryDirectory(prefix="tf-tvm-ops-ptxas-") as folder:
        source, result = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_bytes(ptx)
        command = [_program(), "--verbose", f"--gpu-name={arch}", str(source), "-o", str(result)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise CompilerError(f"the CUDA assembler cannot be started: {error}") from error
        if done.returncode != 0:
            printed = (done.stderr or done.stdout).strip()
            lines = printed.splitlines() or [f"exit status {done.returncode}"]
            raise CompilerError(f"the CUDA assembler failed for {arch}: {lines[0]}")
        # What --verbose has to say goes to one or the other, by version.
        return result.read_bytes(), parse_log(done.stdout + done.stderr)


_FIGURES = {
    "registers": r"Used (\d+) registers",
    "shared_bytes": r"(\d+) bytes smem",
    "stack_bytes": r"(\d+) bytes stack frame",
    "spill_bytes": r"(\d+) bytes spill stores",
}


def parse_log(log: str) -> Resources:
    """The figures that the assembler printed for the one kernel of a program.

    Raises
    ------
    CompilerError
        If they are not there.
    """
    found = {name: re.findall(pattern, log) for name, pattern in _FIGURES.items()}
    found["shared_bytes"] = found["shared_bytes"] or ["0"]  # not printed where there is none
    if any(len(numbers) != 1 for numbers in found.values()):
        raise CompilerError(f"no resource figures of one kernel in the compiler's log: {log!r}")
    return Resources(**{name: int(numbers[0]) for name, numbers in found.items()})


@cache
def _program() -> str:
    return str(TOOL.path())
