"""Finding and loading the op library, and the versions it needs."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

from tf_tvm_ops import config
from tf_tvm_ops.version import __version__

_ROOT = Path(__file__).parent
_TENSORFLOW_DISTRIBUTIONS = (
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-intel",
    "tensorflow-rocm",
    "tf-nightly",
    "tf-nightly-cpu",
)
_lock = threading.Lock()
_ops: Any = None
_ffi: ctypes.CDLL | None = None
_xla: ctypes.CDLL | None = None


def built_for_tensorflow() -> str | None:
    """The TensorFlow version the op library was built with; None if it was built without."""
    try:
        from tf_tvm_ops import _build_info
    except ImportError:
        return None
    version: str | None = _build_info.TENSORFLOW_VERSION
    return version


def installed_tensorflow() -> str | None:
    """The version of the TensorFlow installed, without importing it; None if there is none."""
    if importlib.util.find_spec("tensorflow") is None:
        return None
    for name in _TENSORFLOW_DISTRIBUTIONS:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _minor(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])


def version_mismatch() -> str | None:
    """One sentence if the installed TensorFlow is not the one the op library was built for.

    An op library uses TensorFlow's C++ interface, which changes with every minor version.
    """
    built, installed = built_for_tensorflow(), installed_tensorflow()
    if built is None or installed is None or _minor(built) == _minor(installed):
        return None
    series = ".".join(_minor(built))
    return (
        f"tf_tvm_ops {__version__} was built for TensorFlow {built} but TensorFlow {installed} "
        f"is installed: install tensorflow=={series}.* or rebuild tf_tvm_ops against "
        f"{installed}; stock TensorFlow is not affected."
    )


def warn_of_other_tensorflow() -> None:
    """Warn, once, if the op library cannot work with the TensorFlow installed."""
    mismatch = version_mismatch()
    if mismatch:
        warnings.warn(mismatch, RuntimeWarning, stacklevel=3)


def preload_tvm_ffi() -> None:
    """Open ``libtvm_ffi`` so that the libraries of this package find it wherever it is installed.

    The package is looked up without importing it: serving needs the library only.

    Raises
    ------
    ImportError
        If ``apache-tvm-ffi`` is not installed or its library cannot be opened.
    """
    global _ffi
    if _ffi is not None:
        return
    spec = importlib.util.find_spec("tvm_ffi")
    if spec is None or spec.origin is None:
        raise ImportError(
            "tf_tvm_ops needs libtvm_ffi, and the package apache-tvm-ffi is not installed: "
            "pip install apache-tvm-ffi."
        )
    path = Path(spec.origin).parent / "lib" / "libtvm_ffi.so"
    try:
        # Global, because an image names the symbols it needs and not the library.
        _ffi = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise ImportError(
            f"tf_tvm_ops needs libtvm_ffi, and it could not be opened ({error}): "
            "reinstall apache-tvm-ffi."
        ) from error


def native() -> Any:
    """The module ``tf_tvm_ops._native``, the kernels and packs without TensorFlow.

    Raises
    ------
    ImportError
        If it was not built, or ``libtvm_ffi`` is missing.
    """
    preload_tvm_ffi()
    return importlib.import_module("tf_tvm_ops._native")


def library_path() -> str:
    """The path of the op library, for ``tf.load_op_library``.

    What the library links against is opened on the way, so that it loads from any environment.

    Raises
    ------
    ImportError
        If TensorFlow, ``libtvm_ffi`` or the op library is missing, or the op library was built
        for another minor version of TensorFlow. Stock TensorFlow stays usable.
    """
    path = _ROOT / "lib" / "libtf_tvm_ops.so"
    if importlib.util.find_spec("tensorflow") is None:
        raise ImportError(
            "The ops of tf_tvm_ops need TensorFlow, which is not installed: pip install tensorflow."
        )
    if not path.is_file():
        raise ImportError(
            f"{path} is missing: tf_tvm_ops was installed or built without TensorFlow; "
            "install TensorFlow and build tf_tvm_ops again."
        )
    mismatch = version_mismatch()
    if mismatch:
        raise ImportError(mismatch)
    preload_tvm_ffi()
    if "tensorflow" in sys.modules:
        # Registers the gradients, for those who load the library themselves.
        importlib.import_module("tf_tvm_ops.ops")
    return str(path)


def _load_ops() -> Any:
    if _ops is not None:
        return _ops
    path = library_path()
    import tensorflow as tf

    importlib.import_module("tf_tvm_ops.ops")
    return tf.load_op_library(path)


def _load_xla() -> None:
    """Load the XLA kernels, after the ops."""
    global _xla
    if _xla is not None:
        return
    path = _ROOT / "lib" / "libtf_tvm_ops_xla.so"
    if not path.is_file():
        raise ImportError(
            f"{path} is missing: tf_tvm_ops was built without XLA; build it again with "
            "-DTF_TVM_OPS_WITH_XLA=ON."
        )
    try:
        # What it links against, TensorFlow has loaded already.
        library = ctypes.CDLL(str(path))
        register = library.TfTvmOpsRegisterXla
    except (OSError, AttributeError) as error:
        raise ImportError(
            f"The XLA kernels of tf_tvm_ops could not be loaded ({error}): "
            "install tf_tvm_ops again."
        ) from error
    register.restype = ctypes.c_char_p
    problem = register()
    if problem is not None:
        raise ImportError(f"{path} was not used: {problem.decode()}.")
    _xla = library


def _xla_wanted() -> bool:
    try:
        return config.XLA.get() == "on"
    except ValueError as error:
        warnings.warn(f"{error}, which is used", RuntimeWarning, stacklevel=4)
        return config.XLA.default == "on"


def _load_xla_or_warn() -> None:
    try:
        _load_xla()
    except ImportError as error:
        warnings.warn(
            f"{error} The ops of tf_tvm_ops work, but XLA cannot compile them (jit_compile=True, "
            f"auto-clustering); set {config.XLA.name}=off if that is what you want.",
            RuntimeWarning,
            stacklevel=3,
        )


def load() -> Any:
    """Load the op library into TensorFlow and return its generated ops module.

    The XLA kernels are loaded too, which takes a few milliseconds, unless ``TF_TVM_OPS_XLA`` is
    ``off``. If they cannot be, a warning says why, and the ops work everywhere but in what XLA
    compiles. May be called any number of times, from any thread.

    Raises
    ------
    ImportError
        As `library_path`.
    tf.errors.FailedPreconditionError
        If a copy of the library is already loaded from another path.
    """
    global _ops
    if _ops is not None:
        return _ops
    with _lock:
        if _ops is None:
            ops = _load_ops()
            if _xla_wanted():
                _load_xla_or_warn()
            # Last, since other threads stop waiting at the sight of it.
            _ops = ops
    return _ops


def load_xla() -> None:
    """Load the op library and the XLA kernels of its ops.

    With them XLA compiles the ops, in functions with ``jit_compile=True`` and in auto-clustering.
    `load` does this by itself unless ``TF_TVM_OPS_XLA`` is ``off``; it is for those who set that,
    or who load the op library with ``tf.load_op_library``. May be called any number of times, from
    any thread, also after XLA compiled something.

    Raises
    ------
    ImportError
        As `library_path`; or if the library with the XLA kernels is missing, cannot be opened, or
        is already loaded from another path.
    tf.errors.FailedPreconditionError
        If a copy of the op library is already loaded from another path.
    """
    global _ops
    with _lock:
        ops = _load_ops()
        _load_xla()
        _ops = ops


def cmake_dir() -> str:
    """The folder to give to CMake as ``tf_tvm_ops_DIR`` for ``find_package(tf_tvm_ops)``."""
    return str(_ROOT / "share" / "cmake" / "tf_tvm_ops")
