"""Makes the folder that travels to a machine with a GPU."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tf_tvm_ops.kernels import manifest, travel
from tf_tvm_ops.kernels.cuda.targets import is_cuda
from tf_tvm_ops.kernels.manifest import Manifest
from tf_tvm_ops.kernels.shapes import load_table
from tf_tvm_ops.tools.gpu_check import cases, images
from tf_tvm_ops.tools.gpu_check.cases import Case
from tf_tvm_ops.tools.gpu_check.parts import RUN_FILE

KERNELS = Path(manifest.__file__).parent
TOOL = Path(__file__).parent

MODULES = (
    *("arguments.py", "elements.py", "manifest.py", "oracle.py", "problem.py"),
    *("cuda/targets.py", "runtime/cuda.py", "runtime/device_memory.py", "runtime/ffi.py"),
    *("runtime/libraries.py", "runtime/turns.py"),
)
"""Of :mod:`tf_tvm_ops.kernels`, those that travel; they need NumPy alone."""

STAY = ("__init__.py", "bundle.py", "command.py")
"""Of this package, those that do not."""

_RUN = '''"""Checks and times the GPU kernels of this folder: see --help."""

import sys
from pathlib import Path

if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    sys.path.insert(0, str(here))
    from tf_tvm_ops.tools.gpu_check.main import main

    sys.exit(main(here))
'''


class BundleError(ValueError):
    """A bundle that cannot be made; the message says what is missing."""


def make(pack: Path, tables: Iterable[Path], out: Path) -> list[Case]:
    """Write a bundle: a folder, or an archive if the name ends in ``.tar.gz``.

    Parameters
    ----------
    pack
        A pack with images for GPUs; those for CPUs stay behind.
    tables
        Shape tables whose products are timed. Products that the pack has no kernel of their own
        for are left out.
    out
        What to write. It must not be there yet.

    Returns
    -------
    list of Case
        What will be timed.

    Raises
    ------
    BundleError
        If the pack has no image for GPUs, or if ``out`` is there.
    MissingLibraryError
        If a library is not installed.
    ManifestError, ShapeTableError
        If the pack or a table cannot be used.
    """
    found = manifest.load(pack)
    kept = tuple(image for image in found.images if is_cuda(image.target))
    if not kept:
        has = ", ".join(image.target for image in found.images) or "none"
        raise BundleError(
            f"{pack} has no image for GPUs (it has {has}); generate it with --target cuda:sm_90"
        )
    if out.exists():
        raise BundleError(f"{out} is there already; give another name or remove it")
    out.parent.mkdir(parents=True, exist_ok=True)
    selected = _cases(kept, tables)
    archived = out.name.endswith(".tar.gz")
    name = out.name[: -len(".tar.gz")] if archived else out.name
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=out.parent) as folder:
        staged = Path(folder, name)
        _write_pack(pack, Manifest(found.abi, found.made_with, kept), staged / images.PACK)
        travel.copy_libraries(staged / images.LIBRARIES, cuda=True)
        modules = {KERNELS / name: f"kernels/{name}" for name in MODULES}
        for path in sorted(TOOL.glob("*.py")):
            if path.name not in STAY:
                modules[path] = f"tools/{TOOL.name}/{path.name}"
        travel.copy_modules(staged, modules)
        cases.write(staged, selected)
        (staged / RUN_FILE).write_text(_RUN, encoding="utf-8")
        if archived:
            staged = travel.archive(staged)
        os.rename(staged, out)
    return selected


def _cases(kept: Sequence[manifest.ImageEntry], tables: Iterable[Path]) -> list[Case]:
    problems = {kernel.problem for image in kept for kernel in image.kernels}
    found: dict[Case, None] = {}
    for table in tables:
        for row in load_table(table):
            if row.problem in problems:
                *outer, heads = (1, *row.batch)
                batch = math.prod(outer)
                epilogue = cases.epilogue_of(row)
                found[Case(table.stem, row.site, batch, heads, row.problem, epilogue)] = None
    return cases.spread(found)


def _write_pack(pack: Path, kept: Manifest, folder: Path) -> None:
    folder.mkdir(parents=True)
    for image in kept.images:
        if manifest.file_sha256(pack / image.file) != image.sha256:
            raise BundleError(f"{pack / image.file} is damaged; generate the pack again")
        shutil.copyfile(pack / image.file, folder / image.file)
    (folder / manifest.FILE_NAME).write_text(kept.dump(), encoding="utf-8")
