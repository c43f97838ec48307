"""The oracle check that a kernel passes before it enters a manifest: images for CPUs.

What is checked is in ``oracle.py``. Here kernels are called through tvm-ffi, in memory of this
process, which ends behind the last row of operands without gaps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tvm_ffi

from . import oracle
from .host_memory import HostMemory
from .oracle import Layout as Layout
from .problem import Problem
from .targets import request_tiles

_MISSING = "symbol missing from the image"


def verify_image(image: Path, entries: list[tuple[str, Problem, int]]) -> list[str]:
    """Check kernels of an image against the oracle.

    Parameters
    ----------
    image
        A linked image.
    entries
        Symbol, problem and workspace size in bytes of each kernel.

    Returns
    -------
    list of str
        What is wrong with each kernel, ``""`` where nothing is.
    """
    request_tiles()
    module = tvm_ffi.load_module(str(image.resolve()))
    return [verify_kernel(module, *entry) for entry in entries]


def check_layout(
    image: Path, symbol: str, problem: Problem, workspace_bytes: int, layout: Layout
) -> str:
    """As :func:`verify_image` for one kernel with fixed extents and one layout."""
    request_tiles()
    function = tvm_ffi.load_module(str(image.resolve())).get_function(symbol)
    rng = np.random.default_rng()
    return oracle.check_layout(
        function, problem, problem.extents(), layout, workspace_bytes, HostMemory(), rng
    )


def missing_symbols(image: Path, symbols: list[str]) -> list[str]:
    """What is wrong with each kernel, without running it: "" if it is there."""
    module = tvm_ffi.load_module(str(image.resolve()))
    return ["" if _function(module, symbol) else _MISSING for symbol in symbols]


def _function(module: Any, symbol: str) -> Any:
    try:
        return module.get_function(symbol)
    except AttributeError:
        return None


def verify_kernel(module: Any, symbol: str, problem: Problem, workspace_bytes: int) -> str:
    """What is wrong with one kernel of a module, ``""`` if nothing is."""
    function = _function(module, symbol)
    if function is None:
        return _MISSING
    return oracle.check_kernel(function, problem, workspace_bytes, HostMemory())
