"""The packs of kernels in this process. TensorFlow is not needed here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tf_tvm_ops.library import native

__all__ = ["Pack", "PackError", "load", "loaded"]


class PackError(ValueError):
    """A pack that cannot be used; the message names the folder and the reason."""


@dataclass(frozen=True)
class Pack:
    """A pack whose kernels the ops may use.

    Attributes
    ----------
    path
        Its folder.
    kernels
        Number of problems that it has a kernel for on this machine.
    targets
        Those whose images are in use, the best first.
    ignored
        Images that are not used on this machine, and why.
    """

    path: Path
    kernels: int
    targets: tuple[str, ...]
    ignored: tuple[str, ...]


def load(path: str | os.PathLike[str]) -> Pack:
    """Load a pack into this process; its kernels are preferred to those loaded before.

    Parameters
    ----------
    path
        A folder that ``tf-tvm-ops generate`` wrote. Loading it again reads it again.

    Returns
    -------
    Pack

    Raises
    ------
    PackError
        If the pack cannot be used. What was loaded before stays in force.
    """
    try:
        return _pack(native().global_dispatcher().load_pack(os.fspath(path)))
    except ValueError as error:
        raise PackError(str(error)) from error


def loaded() -> tuple[Pack, ...]:
    """The packs in force, the preferred first.

    They come from `load`, then from ``TF_TVM_OPS_PACKS``, then from this package.
    """
    return tuple(_pack(info) for info in native().global_dispatcher().packs())


def _pack(info: Any) -> Pack:
    return Pack(Path(info.path), info.kernels, tuple(info.targets), tuple(info.ignored))
