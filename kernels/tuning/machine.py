"""What a measurement was made on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def cpu_model() -> str:
    """Name of the processor."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    for line in text.splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


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


def cores() -> list[int]:
    """The processors that this process may run on."""
    return sorted(os.sched_getaffinity(0))


def processor() -> str:
    """One line that tells processors with different timing apart: model and caches."""
    caches = ", ".join(f"{name} {size >> 10} KiB" for name, size in cache_sizes().items())
    return f"{cpu_model()}; {caches}" if caches else cpu_model()
