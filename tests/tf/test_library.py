"""Importing the package and loading the op library, also where something is missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import tensorflow as tf

import tf_tvm_ops

from .processes import output_of, output_with_tensorflow, run_python

_HIDE_TENSORFLOW = "import sys; sys.modules['tensorflow'] = None\n"
_HIDE_TVM_FFI = "import sys; sys.modules['tvm_ffi'] = None\n"
_BUILT_FOR_220 = """
import sys, types
sys.modules["tf_tvm_ops._build_info"] = types.SimpleNamespace(TENSORFLOW_VERSION="2.20.1")
"""


def test_import_is_cheap() -> None:
    heavy = output_of(
        """
        import sys
        import tf_tvm_ops
        print([m for m in ("tensorflow", "tvm", "tvm_ffi", "numpy", "click") if m in sys.modules])
        """
    )
    assert heavy == "[]"


def test_everything_but_the_ops_works_without_tensorflow() -> None:
    printed = output_of(
        _HIDE_TENSORFLOW
        + """
import warnings
warnings.simplefilter("error")
import numpy as np
import tf_tvm_ops
from tf_tvm_ops.library import native
assert tf_tvm_ops.packs.loaded()
a = np.ones((2, 17, 64), np.float32)
product, kernel = native().global_dispatcher().matmul(a, a.swapaxes(1, 2))
print(product.shape, (product == 64).all(), kernel.m, kernel.n, kernel.k)
"""
    )
    assert printed == "(2, 17, 17) True 17 17 64"


def test_ops_without_tensorflow_say_so() -> None:
    printed = output_of(
        _HIDE_TENSORFLOW
        + """
import tf_tvm_ops
for use in (tf_tvm_ops.library_path, tf_tvm_ops.load):
    try:
        use()
    except ImportError as error:
        print(error)
"""
    )
    want = "The ops of tf_tvm_ops need TensorFlow, which is not installed: pip install tensorflow."
    assert printed.splitlines() == [want, want]


def test_without_libtvm_ffi_stock_stays_usable() -> None:
    printed = output_of(
        _HIDE_TVM_FFI
        + """
import tensorflow as tf
import tf_tvm_ops
try:
    tf_tvm_ops.load()
except ImportError as error:
    print(error)
print(tf.matmul(tf.ones([1, 2]), tf.ones([2, 1])).numpy().tolist())
"""
    )
    message, product = printed.splitlines()
    assert "apache-tvm-ffi is not installed" in message
    assert product == "[[2.0]]"


def test_another_tensorflow_is_one_warning_and_a_clear_error() -> None:
    done = run_python(
        _BUILT_FOR_220
        + """
import tf_tvm_ops
try:
    tf_tvm_ops.load()
except ImportError as error:
    print(error)
import tensorflow as tf
print(tf.matmul(tf.ones([1, 2]), tf.ones([2, 1])).numpy().tolist())
"""
    )
    assert done.returncode == 0, done.stderr
    message, product = done.stdout.strip().splitlines()
    for words in ("built for TensorFlow 2.20.1", f"TensorFlow {tf.__version__}", "2.20.*"):
        assert words in message
    assert product == "[[2.0]]"
    assert done.stderr.count(message) == 1
    assert done.stderr.count("RuntimeWarning") == 1


def test_the_tensorflow_it_was_built_for_is_no_warning() -> None:
    done = run_python("import warnings; warnings.simplefilter('error'); import tf_tvm_ops")
    assert done.returncode == 0, done.stderr


def test_missing_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tf_tvm_ops.library._ROOT", tmp_path)
    with pytest.raises(ImportError, match="built without TensorFlow"):
        tf_tvm_ops.library_path()


def test_loading_again_is_the_same() -> None:
    ops = tf_tvm_ops.load()
    assert tf_tvm_ops.load() is ops
    again = tf.load_op_library(tf_tvm_ops.library_path())
    product = again.tvm_batch_mat_mul(lhs=[[2.0]], rhs=[[3.0]])
    assert product.numpy().tolist() == [[6.0]]


def test_many_threads_load_once() -> None:
    printed = output_with_tensorflow(
        """
        import threading
        import tf_tvm_ops
        gate, found = threading.Barrier(16), []

        def work():
            gate.wait()
            found.append(tf_tvm_ops.load())

        threads = [threading.Thread(target=work) for _ in range(16)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(len(found), len(set(map(id, found))))
        """
    )
    assert printed == "16 1"


def test_a_copy_at_another_path_is_refused(tmp_path: Path) -> None:
    """TensorFlow would take it, and both would fail at the next use of the op."""
    copy = shutil.copy(tf_tvm_ops.library_path(), tmp_path)
    printed = output_with_tensorflow(
        f"""
        import tensorflow as tf
        import tf_tvm_ops
        tf_tvm_ops.load()
        try:
            tf.load_op_library({copy!r})
        except tf.errors.FailedPreconditionError as error:
            print(error.message)
        print(tf_tvm_ops.batch_matmul([[2.0]], [[3.0]]).numpy().tolist())
        """
    )
    message, product = printed.splitlines()
    assert "already loaded from another path" in message
    assert product == "[[6.0]]"


def test_gradients_are_there_for_those_who_load_the_library_themselves() -> None:
    printed = output_with_tensorflow(
        """
        import tensorflow as tf
        import tf_tvm_ops
        ops = tf.load_op_library(tf_tvm_ops.library_path())
        x = tf.constant([[2.0]])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = ops.tvm_batch_mat_mul(lhs=x, rhs=x)
        print(tape.gradient(y, x).numpy().tolist())
        """
    )
    assert printed == "[[4.0]]"


def test_cmake_dir() -> None:
    assert Path(tf_tvm_ops.cmake_dir()).parts[-3:] == ("share", "cmake", "tf_tvm_ops")


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        tf_tvm_ops.no_such_name  # noqa: B018
    assert {"batch_matmul", "load", "packs", "__version__"} <= set(dir(tf_tvm_ops))
