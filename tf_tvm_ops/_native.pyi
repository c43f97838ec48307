"""The dispatcher of tf_tvm_ops, without TensorFlow."""

import os
from typing import TypeVar

import numpy as np
import numpy.typing as npt

_Scalar = TypeVar("_Scalar", bound=np.generic)

class KernelInfo:
    """A kernel of a loaded pack."""

    @property
    def symbol(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def pack(self) -> str: ...
    @property
    def config(self) -> str: ...
    @property
    def problem(self) -> str: ...
    @property
    def m(self) -> int | None: ...
    @property
    def n(self) -> int | None: ...
    @property
    def k(self) -> int | None: ...
    @property
    def lhs(self) -> str: ...
    @property
    def rhs(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def is_generic(self) -> bool: ...
    def ready(self) -> bool: ...

class Gpu:
    """A GPU to compute on."""

    def __init__(self, capability: tuple[int, int], device: int = 0, stream: int = 0) -> None: ...

class PackInfo:
    """A loaded pack."""

    @property
    def path(self) -> str: ...
    @property
    def kernels(self) -> int: ...
    @property
    def targets(self) -> list[str]: ...
    @property
    def ignored(self) -> list[str]: ...

class Dispatcher:
    """Packs in, kernels by problem out."""

    def __init__(self, cpu_target_limit: str = "") -> None: ...
    def load_pack(self, path: str | os.PathLike[str]) -> PackInfo: ...
    def find(
        self,
        m: int | None,
        n: int | None,
        k: int | None,
        lhs: str = "k",
        rhs: str = "n",
        dtype: str = "float32",
        gpu: Gpu | None = None,
    ) -> KernelInfo | None: ...
    def packs(self) -> list[PackInfo]: ...
    def matmul(
        self,
        lhs: npt.NDArray[_Scalar],
        rhs: npt.NDArray[_Scalar],
        threads: int = 1,
        kernel: str = "auto",
        out: npt.NDArray[_Scalar] | None = None,
        addend: npt.NDArray[_Scalar] | None = None,
        scale: float = 1.0,
        gpu: Gpu | None = None,
    ) -> tuple[npt.NDArray[_Scalar], KernelInfo | None]: ...
    def benchmark(
        self,
        m: int | None,
        n: int | None,
        k: int | None,
        lhs: str = "k",
        rhs: str = "n",
        dtype: str = "float32",
        iterations: int = 1_000_000,
    ) -> tuple[float, float]: ...

def global_dispatcher() -> Dispatcher: ...
def supported_cpu_targets() -> list[str]: ...
def cuda_targets(capability: tuple[int, int]) -> list[str]: ...
def has_cuda_driver() -> bool: ...
def cuda_problem() -> str: ...
def sha256(data: bytes) -> str: ...
