"""What a measurement was made on: processor, caches, versions."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from dataclasses import dataclass

from tf_tvm_ops.kernels.targets import TARGETS
from tf_tvm_ops.kernels.tuning.machine import cache_sizes, cpu_model
from tf_tvm_ops.version import __version__

_DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "apache-tvm-ffi", "numpy")


@dataclass(frozen=True)
class Machine:
    """The machine and the software of a measurement.

    Attributes
    ----------
    cpu
        Model name.
    cores
        Those this process may run on.
    level
        The best CPU target that the machine runs, ``"none"`` if there is none.
    caches
        ``"L1d 48 KiB"``, …, as the first core sees them.
    system
        Operating system and C library.
    versions
        Of the packages that matter, by name.
    load
        Processes that were running when the measurement began, besides it: the average of the
        last minute. Above about half a core, times of several threads mean little.
    """

    cpu: str
    cores: int
    level: str
    caches: tuple[str, ...]
    system: str
    versions: dict[str, str]
    load: float

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return (
            f"{self.cpu}, {self.cores} cores, {self.level}; {', '.join(self.caches)}; "
            f"{self.system}; {versions}; load {self.load:.1f}"
        )


def describe() -> Machine:
    """The machine this runs on."""
    usable = [target.name for target in TARGETS.values() if target.runs_here()]
    return Machine(
        cpu=cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        level=usable[-1] if usable else "none",
        caches=tuple(f"{name} {size >> 10} KiB" for name, size in cache_sizes().items()),
        system=f"{platform.system()} {platform.release()}, {' '.join(platform.libc_ver())}",
        versions=_versions(),
        load=os.getloadavg()[0],
    )


def _versions() -> dict[str, str]:
    versions = {"tf_tvm_ops": __version__, "Python": platform.python_version()}
    for name in _DISTRIBUTIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
