"""TensorFlow with two GPUs that are none, and a pack for them."""

from __future__ import annotations

import os
import subprocess
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import tensorflow as tf

from tests.tf.processes import output_with_tensorflow, run_with_tensorflow
from tests.tvm.cuda.driver import Machine, make_machine
from tf_tvm_ops.kernels.problem import Problem

HERE = Path(__file__).parent
SM_90 = "cuda:sm_90"

PROBLEMS = (
    Problem(17, 17, 64, rhs="k"),
    *(Problem(None, None, None, lhs, rhs) for lhs in "km" for rhs in "nk"),
    *(Problem(None, None, None, dtype=dtype) for dtype in ("float16", "bfloat16", "float64")),
)
"""Of the pack: one product, and any of float32 or, of row-major operands, the other dtypes."""

_PRELUDE = """
import collections, ctypes, json, os
import numpy as np
import tensorflow as tf
from tensorflow.python.client import pywrap_tf_session
pywrap_tf_session.TF_LoadPluggableDeviceLibrary({device!r})
stock = tf.load_op_library({stock!r})
for index in (0, 1):
    with tf.device(f"/GPU:{{index}}"):
        stock.FakeGpuDescribe(
            description=f"device: {{index}}, name: fake, pci bus id: 0" + {capability!r}
        )
import tf_tvm_ops
from tf_tvm_ops import batch_matmul, batch_matmul_add, batch_matmul_transpose
from tf_tvm_ops.ops import served_by
from tests.oracle import check_matmul

_library = ctypes.CDLL({stock!r})
_library.fake_stock_ran.restype = ctypes.c_char_p
_driver = ctypes.CDLL("libcuda.so.1") if {has_driver} else None

def stock_ran():
    # Stock kernels that ran on GPUs since the last call.
    return _library.fake_stock_ran().decode().split()

def count(name):
    return ctypes.c_int.in_dll(_driver, name).value

def random(*shape, dtype=np.float32):
    rng = np.random.default_rng(sum(shape))
    return (rng.random(shape) - 0.5).astype(dtype)

def name_of(server):
    return server.numpy().decode()
"""


def _build(source: str, library: Path, flags: Sequence[str]) -> None:
    framework = [flag for flag in tf.sysconfig.get_link_flags() if flag]
    command = [os.environ.get("CXX", "c++"), "-std=c++17", "-O1", "-fPIC", "-shared", "-DNDEBUG"]
    subprocess.run([*command, *flags, HERE / source, "-o", library, *framework], check=True)


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """The driver and the pack, with the libraries that TensorFlow loads beside them."""
    made = make_machine(tmp_path_factory.mktemp("machine"), {SM_90: PROBLEMS})
    flags = [f.replace("-I", "-isystem", 1) for f in tf.sysconfig.get_compile_flags()]
    for name in ("fake_gpu", "fake_stock"):
        _build(f"{name}.cc", made.folder / f"{name}.so", flags)
    return made


@pytest.fixture
def on_gpus(machine: Machine) -> Callable[..., str]:
    """``on_gpus(code, **environment)``: what code printed on that machine; it must end well."""

    def run(code: str, **environment: str) -> str:
        return output_with_tensorflow(
            _program(machine, code, environment), **_environment(machine, environment)
        )

    return run


@pytest.fixture
def ended(machine: Machine) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The same, and how the process ended and what it wrote to standard error."""

    def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
        given = _environment(machine, environment)
        return run_with_tensorflow(_program(machine, code, environment), **given)

    return run


def _program(machine: Machine, code: str, environment: dict[str, str]) -> str:
    capability = environment.pop("capability", "9.0")
    prelude = _PRELUDE.format(
        device=str(machine.folder / "fake_gpu.so"),
        stock=str(machine.folder / "fake_stock.so"),
        capability=f", compute capability: {capability}" if capability else "",
        has_driver="LD_LIBRARY_PATH" not in environment,
    )
    return prelude + textwrap.dedent(code)


def _environment(machine: Machine, environment: dict[str, str]) -> dict[str, str]:
    return {
        **machine.environment(),
        "TF_TVM_OPS_PACKS": str(machine.pack),
        "TF_CPP_MIN_LOG_LEVEL": "2",
        **environment,
    }
