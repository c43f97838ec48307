"""NVIDIA's compiler and assembler as Python packages bring them, and the error of both."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from dataclasses import dataclass
from pathlib import Path


class CompilerError(RuntimeError):
    """The CUDA compiler is missing or refused its input; the message is one line."""


@dataclass(frozen=True)
class Tool:
    """A file of a package.

    Attributes
    ----------
    what
        What it is, for messages.
    package
        Name of the package.
    file
        Where it lies in the folder ``nvidia`` that all packages of NVIDIA share.
    """

    what: str
    package: str
    file: str

    def version(self) -> str:
        """Version of the package.

        Raises
        ------
        CompilerError
            If it is not installed.
        """
        try:
            return importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            raise self._missing() from None

    def path(self) -> Path:
        """The file.

        Raises
        ------
        CompilerError
            If it is not there.
        """
        spec = importlib.util.find_spec("nvidia")
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            path = Path(folder, self.file)
            if path.exists():
                return path
        raise self._missing()

    def _missing(self) -> CompilerError:
        return CompilerError(
            f"no CUDA {self.what}: pip install 'tf-tvm-ops[cuda-build]' brings {self.package}"
        )
