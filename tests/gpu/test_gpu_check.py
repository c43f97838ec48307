"""GPU kernels on a GPU: run with ``--gpu``. Elsewhere the same code runs in tests/tvm/cuda."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tf_tvm_ops.kernels.cuda.targets import CUDA_TARGETS
from tf_tvm_ops.kernels.runtime import cuda
from tf_tvm_ops.tools.generate import generate
from tf_tvm_ops.tools.gpu_check.command import bundle as make_bundle

pytestmark = pytest.mark.gpu

# Something for each rule, in each type; the headline among them.
TABLE = """
rows:
- {site: headline, batch: [64, 8], m: 1, n: 17, k: 128}
- {site: headline, batch: [64, 8], m: 1, n: 17, k: 128, rhs: k}
- {site: scores, batch: [64, 8], m: [1, 5, 17, 32], n: [17, 30], k: [32, 64], rhs: k}
- {site: values, batch: [64, 8], m: [1, 7, 17], n: [33, 64], k: [9, 17]}
- {site: other orders, batch: [2, 3], m: 18, n: 9, k: 33, lhs: m, dtype: [float32, float64]}
- {site: longer, batch: [8, 12], m: 128, n: 128, k: 64, rhs: k, dtype: [float32, float16, bfloat16]}
- {site: odd, batch: [65536], m: 16, n: 16, k: 8, dtype: [float16, bfloat16]}
"""


def target_of_this_gpu() -> str:
    (capability, *_) = (device.capability for device in cuda.Driver().devices())
    fit = [t for t in CUDA_TARGETS.values() if t.runs_on(capability) and not t.is_virtual]
    assert fit, f"no target for compute capability {capability}"
    return max(fit, key=lambda target: target.capability).name


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kernels for this GPU, and those that any later one compiles when it loads them."""
    folder = tmp_path_factory.mktemp("gpu")
    table = folder / "translation.yaml"
    table.write_text(TABLE)
    targets = (target_of_this_gpu(), "cuda:compute_80")
    given = [word for target in targets for word in ("--target", target)]
    pack, out = str(folder / "pack"), str(folder / "bundle")
    for command, arguments in (
        (generate, ["--shapes", str(table), *given, "--all-generic", "--out", pack]),
        (make_bundle, [pack, "--out", out, "--shapes", str(table)]),
    ):
        result = CliRunner().invoke(command, arguments)
        assert result.exit_code == 0, result.output
    return Path(out)


def run(bundle: Path, out: Path, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, bundle / "run.py", "--out", out, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    results: dict[str, Any] = json.loads((out / "results.json").read_text())
    return results


def test_every_kernel_is_right(bundle, tmp_path):
    results = run(bundle, tmp_path, "--check-only")
    assert results["checks"]
    assert set(results["checks"].values()) == {""}
    assert results["parts"]["check"]["not_reached"] == []


def test_every_product_is_timed(bundle, tmp_path):
    results = run(bundle, tmp_path, "--seconds", "200", "--rounds", "5")
    (part, *_) = (name for name in results["parts"] if name != "check")
    assert results["parts"][part]["not_reached"] == []
    timed = [record for record in results["measurements"] if record["part"] == part]
    assert len(timed) == len(results["cases"])
    for record in timed:
        assert record["faults"] == {}
        ways = [m["way"] for m in record["measurements"]]
        assert ways.count("ours") == ways.count("ours fused") == 2
