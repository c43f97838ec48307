"""Which targets a CPU can run, and permission to use tiles: cc/dispatch/cpu_features.cc."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import tvm_ffi

from tf_tvm_ops import _native, config

from .fake_packs import AMX_BF16, AMX_FP16, V3, V4, V4_BF16

SOURCES = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """What cpu_probe.cc prints."""
    folder = tmp_path_factory.mktemp("probe")
    (folder / "config_env.h").write_text(config.header())
    # Not of the library, which keeps images to itself.
    parts = (
        *("config", "cpu_features", "cuda_runtime", "cuda_targets", "file", "image", "log"),
        *("problem", "sha256", "workspace"),
    )
    ffi = Path(tvm_ffi.libinfo.find_libtvm_ffi()).parent
    subprocess.run(
        [
            *(os.environ.get("CXX", "c++"), "-std=c++17", "-o", folder / "probe"),
            *(f"-I{path}" for path in (SOURCES, folder, *tvm_ffi.libinfo.include_paths())),
            Path(__file__).with_name("cpu_probe.cc"),
            *(SOURCES / f"cc/dispatch/{part}.cc" for part in parts),
            *(f"-L{ffi}", "-ltvm_ffi", f"-Wl,-rpath,{ffi}", "-ldl", "-pthread"),
        ],
        check=True,
    )
    return subprocess.run([folder / "probe"], check=True, capture_output=True, text=True)


def test_targets_of_a_cpu(probe: subprocess.CompletedProcess[str]) -> None:
    vectors = f"{V4_BF16} {V4} {V3}"
    assert probe.stdout.splitlines()[:7] == [
        "nothing:",
        f"vectors: {vectors}",
        f"not saved: {vectors}",
        f"bf16 tiles: {AMX_BF16} {vectors}",
        f"all tiles: {AMX_FP16} {AMX_BF16} {vectors}",
        f"fp16 tiles: {AMX_FP16} {vectors}",
        f"no tiles: {vectors}",
    ]


def test_image_is_not_opened_where_tiles_are_refused(
    probe: subprocess.CompletedProcess[str],
) -> None:
    """Fails for want of its file where they are given: either way it was asked for them first."""
    given = AMX_BF16 in _native.supported_cpu_targets()
    lines = probe.stdout.splitlines()
    assert lines[7:] == [
        f"tiles {'given' if given else 'refused'}",
        "vectors given",
        "image failed",
    ]
    refused = "Linux does not let this process use tile registers (AMX): "
    assert ("No such file" if given else refused) in probe.stderr
    advice = "Make the pack again" if given else "The next target that has the kernel serves"
    assert advice in probe.stderr
