"""What a measurement was made on: processor, caches, versions."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from dataclasses import dataclass
from pathlib import Path

from tf_tvm_ops.kernels.targets import TARGETS
from tf_tvm_ops.version import __version__

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "apache-tvm-ffi", "numpy")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


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
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        level=usable[-1] if usable else "none",
        caches=tuple(f"{name} {size >> 10} KiB" for name, size in cache_sizes().items()),
        system=f"{platform.system()} {platform.release()}, {' '.join(platform.libc_ver())}",
        versions=_versions(),
        load=os.getloadavg()[0],
    )


def cache_sizes() -> dict[str, int]:
    """Size in bytes of each data cache of the first core, smallest first."""
    sizes: dict[str, int] = {}
    for index in sorted(_CACHES.glob("index*")):
        kind = (index / "type").read_text().strip()
        if kind == "Instruction":
            continue
        level = (index / "level").read_text().strip()
        size = (index / "size").read_text().strip()
        name = f"L{level}{'d' if kind == 'Data' else ''}"
        unit = _UNITS.get(size[-1])
        sizes[name] = int(size[:-1]) * unit if unit else int(size)
    return sizes


def last_level_cache_bytes() -> int:
    """Size of the largest cache; 32 MiB where the system does not tell."""
    return max(cache_sizes().values(), default=32 << 20)


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    for line in text.splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _versions() -> dict[str, str]:
    versions = {"tf_tvm_ops": __version__, "Python": platform.python_version()}
    for name in _DISTRIBUTIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
