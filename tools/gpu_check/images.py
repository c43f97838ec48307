"""The kernels of a bundle that a GPU can run, and the libraries that run them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tf_tvm_ops.kernels import manifest
from tf_tvm_ops.kernels.cuda.targets import CUDA_TARGETS
from tf_tvm_ops.kernels.manifest import ImageEntry, KernelEntry, Manifest
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.runtime import ffi, libraries

LIBRARIES = "lib"
PACK = "pack"
"""Folders of a bundle."""


@dataclass(frozen=True)
class Choice:
    """A kernel and the image that holds it."""

    image: ImageEntry
    kernel: KernelEntry

    @property
    def key(self) -> str:
        """One word for it."""
        return f"{self.image.target}/{self.kernel.symbol}"


def usable(found: Manifest, capability: int) -> list[ImageEntry]:
    """The images that a GPU can run, the best one first.

    Machine code before PTX, and that of the highest capability first, as the dispatcher chooses.
    """
    fit = []
    for image in found.images:
        target = CUDA_TARGETS.get(image.target)
        if target is not None and target.runs_on(capability):
            fit.append(((target.is_virtual, -target.capability), image))
    return [image for _, image in sorted(fit, key=lambda pair: pair[0])]


def kernels(images: list[ImageEntry]) -> Iterator[Choice]:
    """All kernels of images."""
    for image in images:
        for kernel in image.kernels:
            yield Choice(image, kernel)


def choose(images: list[ImageEntry], problem: Problem) -> Choice | None:
    """The kernel that would serve a product; the generic one if there is no other."""
    generic = Problem(None, None, None, problem.lhs, problem.rhs, problem.dtype)
    for wanted in (problem.canonical(), generic):
        for choice in kernels(images):
            if choice.kernel.problem == wanted:
                return choice
    return None


class Images:
    """Loads what a bundle holds.

    Parameters
    ----------
    bundle
        Its folder.

    Raises
    ------
    MissingLibraryError
        If a library is missing.
    """

    def __init__(self, bundle: Path) -> None:
        self._pack = bundle / PACK
        self.library = ffi.Library(str(bundle / LIBRARIES / libraries.TVM_FFI))
        libraries.load_cuda(bundle / LIBRARIES)
        self._modules: dict[str, ffi.Module] = {}

    def function(self, choice: Choice) -> ffi.Function:
        """The launching function of a kernel.

        Raises
        ------
        AttributeError
            If the image lacks it.
        OSError
            If the image is not the one that the manifest names.
        """
        name = choice.image.file
        if name not in self._modules:
            path = self._pack / name
            if manifest.file_sha256(path) != choice.image.sha256:
                raise OSError(f"{path} is damaged: its checksum is not that of the manifest")
            self._modules[name] = self.library.load_module(path)
        return self._modules[name].get_function(choice.kernel.symbol)
