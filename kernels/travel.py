"""Folders for machines without this package: C libraries, and modules that need NumPy alone."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path

from .runtime import libraries

PACKAGE = "tf_tvm_ops"


def copy_libraries(folder: Path, *, cuda: bool) -> None:
    """The C libraries that kernels need.

    Raises
    ------
    MissingLibraryError
        If one is not installed here.
    """
    found = libraries.installed(cuda=cuda)
    folder.mkdir(parents=True)
    for name, source in found.items():
        shutil.copyfile(source, folder / name)


def copy_modules(folder: Path, modules: Mapping[Path, str]) -> None:
    """Modules, by their names inside the package, in packages that import nothing."""
    package = folder / PACKAGE
    for source, name in modules.items():
        target = package / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        for parent in target.parents:
            (parent / "__init__.py").touch()
            if parent == package:
                break


def archive(folder: Path) -> Path:
    """A folder as ``.tar.gz`` beside it."""
    path = folder.with_name(f"{folder.name}.tar.gz")
    with tarfile.open(path, "w:gz") as file:
        file.add(folder, folder.name)
    return path
