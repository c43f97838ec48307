"""A wheel works in another environment, from another folder, without the TVM compiler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROGRAM = """
import sys
import numpy as np
import tensorflow as tf
import tf_tvm_ops
from tf_tvm_ops.ops import served_by

rng = np.random.default_rng(0)
lhs = rng.standard_normal((4, 8, 1, 128), np.float32)
rhs = rng.standard_normal((4, 8, 17, 128), np.float32)
got = tf_tvm_ops.batch_matmul(lhs, rhs, adj_y=True).numpy()
np.testing.assert_allclose(got, lhs @ rhs.swapaxes(-1, -2), rtol=1e-5, atol=1e-4)
assert "tvm" not in sys.modules
print(tf_tvm_ops.__file__)
print(served_by(lhs, rhs, False, True).numpy().decode())
"""


def run(*command: object, cwd: Path) -> str:
    result = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel, TensorFlow and nothing else, beside a working folder."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--quiet", "--no-input")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, ROOT, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    run(python, "-m", "pip", "--quiet", "--no-input", "install", f"{wheel}[cpu]", cwd=folder)
    return folder


def test_op_is_served_by_the_default_pack(environment: Path) -> None:
    python = environment / "venv" / "bin" / "python"
    module, server = run(python, "-c", PROGRAM, cwd=environment).split()
    assert Path(module).is_relative_to(environment)
    assert server.startswith("bmm_f32_m1_n17_k128_lk_rk_")


def test_command_line(environment: Path) -> None:
    command = environment / "venv" / "bin" / "tf-tvm-ops"
    assert "No problem found" in run(command, "doctor", cwd=environment)
    result = subprocess.run(
        [command, "generate", "--shapes", "x.yaml", "--out", "p"],
        cwd=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert "pip install 'tf-tvm-ops[generate]'" in result.stderr
