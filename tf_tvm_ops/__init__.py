"""Fused batch-matmul kernels for TensorFlow, generated offline by TVM.

Importing this package is cheap: neither TensorFlow nor TVM is imported until it is needed, and
neither has to be installed for the parts that do without.

Examples
--------
>>> import tf_tvm_ops
>>> tf_tvm_ops.batch_matmul(queries, keys, adj_y=True)  # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tf_tvm_ops.library import (
    cmake_dir,
    library_path,
    load,
    load_xla,
    warn_of_other_tensorflow,
)
from tf_tvm_ops.version import __version__

if TYPE_CHECKING:
    from tf_tvm_ops import ops, packs, rewrite
    from tf_tvm_ops.ops import batch_matmul, batch_matmul_add, batch_matmul_transpose
    from tf_tvm_ops.rewrite import rewrite_graph_def, rewrite_saved_model

__all__ = [
    "__version__",
    "batch_matmul",
    "batch_matmul_add",
    "batch_matmul_transpose",
    "cmake_dir",
    "library_path",
    "load",
    "load_xla",
    "ops",
    "packs",
    "rewrite",
    "rewrite_graph_def",
    "rewrite_saved_model",
]

_SUBMODULES = ("ops", "packs", "rewrite")
_FUNCTIONS = {
    "batch_matmul": "tf_tvm_ops.ops",
    "batch_matmul_add": "tf_tvm_ops.ops",
    "batch_matmul_transpose": "tf_tvm_ops.ops",
    "rewrite_graph_def": "tf_tvm_ops.rewrite",
    "rewrite_saved_model": "tf_tvm_ops.rewrite",
}


def __getattr__(name: str) -> Any:
    """What needs TensorFlow or the native module is imported when first asked for."""
    if name in _SUBMODULES:
        return importlib.import_module(f"tf_tvm_ops.{name}")
    if name in _FUNCTIONS:
        return getattr(importlib.import_module(_FUNCTIONS[name]), name)
    raise AttributeError(f"module 'tf_tvm_ops' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


warn_of_other_tensorflow()
