"""Loading the library of XLA kernels: when, in which order, and where it cannot be."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf

import tf_tvm_ops

from .processes import output_of, output_with_tensorflow, run_with_tensorflow

_LIBRARIES = Path(tf_tvm_ops.library_path()).parent
_NAME = "libtf_tvm_ops_xla.so"

# What the programs below use. `served` says whether XLA compiles our op, or what it says if not.
_HELPERS = f"""
import ctypes
import tensorflow as tf
import tf_tvm_ops
from tf_tvm_ops import library

def served():
    run = tf.function(lambda x: tf_tvm_ops.batch_matmul(x, x), jit_compile=True, autograph=False)
    try:
        return run(tf.constant([[2.0]])).numpy().tolist()
    except tf.errors.InvalidArgumentError as error:
        assert "unsupported operations" in error.message, error
        assert "No registered 'TvmBatchMatMul' OpKernel for XLA_CPU_JIT" in error.message, error
        return "unsupported"

def compile_something():
    run = tf.function(lambda x: tf.matmul(x, x), jit_compile=True, autograph=False)
    return run(tf.constant([[2.0]])).numpy().tolist()

def opened():
    with open("/proc/self/maps") as maps:
        return {_NAME!r} in maps.read()

def problem(path):
    register = ctypes.CDLL(path).TfTvmOpsRegisterXla
    register.restype = ctypes.c_char_p
    return (register() or b"none").decode()

def error_of(function):
    try:
        function()
    except ImportError as error:
        return str(error)
"""


def _program(code: str, **environment: str) -> list[str]:
    return output_with_tensorflow(_HELPERS + code, **environment).splitlines()


def test_it_is_loaded_with_the_ops() -> None:
    printed = _program(
        """
print(opened())
tf_tvm_ops.load()
print(opened(), served())
tf_tvm_ops.load_xla()
print(served())
"""
    )
    assert printed == ["False", "True [[4.0]]", "[[4.0]]"]


def test_off_leaves_it_out_until_asked_for() -> None:
    """XLA has compiled by then, after which TensorFlow reads no more XLA registrations."""
    printed = _program(
        """
tf_tvm_ops.load()
print(opened(), served(), compile_something())
tf_tvm_ops.load_xla()
print(opened(), served(), compile_something())
""",
        TF_TVM_OPS_XLA="off",
    )
    assert printed == ["False unsupported [[4.0]]", "True [[4.0]] [[4.0]]"]


def test_an_unknown_value_is_one_warning_and_the_default() -> None:
    done = run_with_tensorflow(
        _HELPERS + "tf_tvm_ops.load(); print(served())", TF_TVM_OPS_XLA="maybe"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[[4.0]]\n"
    assert done.stderr.count("RuntimeWarning") == 1
    assert "TF_TVM_OPS_XLA='maybe': expected one of on, off" in done.stderr


def test_load_xla_alone_loads_the_ops() -> None:
    printed = _program(
        """
tf_tvm_ops.load_xla()
print(served(), tf_tvm_ops.load() is tf_tvm_ops.load())
""",
        TF_TVM_OPS_XLA="off",
    )
    assert printed == ["[[4.0]] True"]


def test_after_tensorflow_loaded_the_ops() -> None:
    printed = _program(
        """
ops = tf.load_op_library(tf_tvm_ops.library_path())
tf_tvm_ops.load_xla()
run = tf.function(lambda x: ops.tvm_batch_mat_mul(lhs=x, rhs=x), jit_compile=True)
print(run(tf.constant([[2.0]])).numpy().tolist())
"""
    )
    assert printed == ["[[4.0]]"]


def test_before_the_ops_it_waits_for_them() -> None:
    """TensorFlow would end the process at the first XLA kernel without an op."""
    printed = _program(
        f"""
print(problem({str(_LIBRARIES / _NAME)!r}))
print(compile_something())
tf_tvm_ops.load()
print(served())
"""
    )
    reason, *others = printed
    assert reason == "the op library, which has the op TvmBatchMatMul, must be loaded first"
    assert others == ["[[4.0]]", "[[4.0]]"]


def test_a_copy_at_another_path_is_refused(tmp_path: Path) -> None:
    """TensorFlow would end the process at the second XLA kernel of an op."""
    for name in (_NAME, "libtf_tvm_ops_dispatch.so"):
        shutil.copy(_LIBRARIES / name, tmp_path)
    printed = _program(
        f"""
tf_tvm_ops.load()
print(problem({str(tmp_path / _NAME)!r}))
print(served())
"""
    )
    reason, product = printed
    assert "already loaded from another path" in reason
    assert product == "[[4.0]]"


def test_after_a_copy_at_another_path_that_one_is_used(tmp_path: Path) -> None:
    for name in (_NAME, "libtf_tvm_ops_dispatch.so"):
        shutil.copy(_LIBRARIES / name, tmp_path)
    printed = _program(
        f"""
tf_tvm_ops.load()
print(problem({str(tmp_path / _NAME)!r}))
print(error_of(tf_tvm_ops.load_xla))
print(served())
""",
        TF_TVM_OPS_XLA="off",
    )
    reason, error, product = printed
    assert reason == "none"
    assert "already loaded from another path" in error
    assert product == "[[4.0]]"


def _remove(library: Path) -> None:
    library.unlink()


def _overwrite(library: Path) -> None:
    library.write_text("not a library")


def _replace_by_another(library: Path) -> None:
    shutil.copy(library.with_name("libtf_tvm_ops_dispatch.so"), library)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_remove, "built without XLA"),
        (_overwrite, "could not be loaded"),
        (_replace_by_another, "could not be loaded"),
    ],
)
def test_without_it_the_ops_work_outside_xla(
    damage: Callable[[Path], None], words: str, tmp_path: Path
) -> None:
    libraries = Path(shutil.copytree(_LIBRARIES, tmp_path / "lib"))
    damage(libraries / _NAME)
    done = run_with_tensorflow(
        _HELPERS
        + f"""
from pathlib import Path
library._ROOT = Path({str(tmp_path)!r})
x = tf.constant([[2.0]])
print(tf_tvm_ops.batch_matmul(x, x).numpy().tolist())
tf_tvm_ops.load()
print(served(), compile_something())
print(error_of(tf_tvm_ops.load_xla))
"""
    )
    assert done.returncode == 0, done.stderr
    product, compiled, error = done.stdout.strip().splitlines()
    assert product == "[[4.0]]"
    assert compiled == "unsupported [[4.0]]"
    assert words in error
    assert done.stderr.count("RuntimeWarning") == 1
    assert done.stderr.count(error) == 1
    assert "TF_TVM_OPS_XLA=off" in done.stderr


def test_another_tensorflow_is_an_error() -> None:
    printed = output_of(
        """
        import sys, types, warnings
        warnings.simplefilter("ignore")
        sys.modules["tf_tvm_ops._build_info"] = types.SimpleNamespace(TENSORFLOW_VERSION="2.20.1")
        import tf_tvm_ops
        try:
            tf_tvm_ops.load_xla()
        except ImportError as error:
            print(error)
        """
    )
    assert f"built for TensorFlow 2.20.1 but TensorFlow {tf.__version__}" in printed


def test_many_threads_load_it_while_another_compiles() -> None:
    printed = _program(
        """
import threading
tf_tvm_ops.load()
gate, errors = threading.Barrier(9), []

def work(function):
    gate.wait()
    try:
        function()
    except BaseException as error:
        errors.append(error)

functions = [compile_something] + [tf_tvm_ops.load_xla] * 8
threads = [threading.Thread(target=work, args=(function,)) for function in functions]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(errors, served())
""",
        TF_TVM_OPS_XLA="off",
    )
    assert printed == ["[] [[4.0]]"]


def test_no_thread_gets_the_ops_without_it() -> None:
    printed = _program(
        """
import threading
load_xla = library._load_xla
other = threading.Thread(target=tf_tvm_ops.load)

def load_xla_while_another_thread_loads():
    other.start()
    other.join(timeout=0.5)
    print(other.is_alive())
    load_xla()

library._load_xla = load_xla_while_another_thread_loads
tf_tvm_ops.load()
other.join()
print(served())
"""
    )
    assert printed == ["True", "[[4.0]]"]
