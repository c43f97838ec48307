"""A pack that cannot be used is one warning and right answers, never a crash."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import tf_tvm_ops

from .processes import own_messages, run_with_tensorflow

_CODE = """
import numpy as np
from tf_tvm_ops import batch_matmul
from tf_tvm_ops.ops import served_by

rng = np.random.default_rng(0)
for _ in range(3):
    for m, n, k in ((17, 17, 64), (1, 17, 128), (11, 13, 19)):
        a = rng.random((64, m, k), dtype=np.float32) - 0.5
        b = rng.random((64, k, n), dtype=np.float32) - 0.5
        np.testing.assert_allclose(
            batch_matmul(a, b), a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4
        )
print(served_by(np.ones((17, 64), "f"), np.ones((64, 17), "f")).numpy().decode())
"""


def _flip_bytes(image: Path) -> None:
    content = bytearray(image.read_bytes())
    for at in range(len(content) // 4, 3 * len(content) // 4, 97):
        content[at] ^= 0xFF
    image.write_bytes(content)


def _truncate(image: Path) -> None:
    image.write_bytes(image.read_bytes()[:1000])


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """A copy of the default pack."""
    (default,) = tf_tvm_ops.packs.loaded()
    folder = tmp_path / "pack"
    shutil.copytree(default.path, folder)
    return folder


@pytest.mark.parametrize(
    "damage", [_flip_bytes, _truncate, Path.unlink], ids=["flipped", "truncated", "missing"]
)
def test_damaged_images(pack: Path, damage: Callable[[Path], object]) -> None:
    """Every image is damaged; what is left is the default pack, which serves as before."""
    for image in pack.glob("*.so"):
        damage(image)
    done = run_with_tensorflow(_CODE, TF_TVM_OPS_PACKS=str(pack))
    assert done.returncode == 0, done.stderr
    messages = own_messages(done.stderr)
    # One for each image that was tried; they are tried when a kernel of theirs is first wanted.
    assert 1 <= len(messages) <= len(list(tf_tvm_ops.packs.loaded()[0].targets))
    assert len(set(messages)) == len(messages)
    assert all(str(pack) in message for message in messages)
    assert done.stdout.strip().startswith("bmm_f32_m17_n17_k64_")


@pytest.mark.parametrize(
    ("damage", "server"),
    [
        # What is inside is read when it is first wanted, what is there when the pack is loaded.
        pytest.param(_flip_bytes, "stock (image)", id="flipped"),
        pytest.param(Path.unlink, "stock (no_kernel)", id="missing"),
    ],
)
def test_stock_serves_when_nothing_else_can(
    pack: Path, damage: Callable[[Path], object], server: str
) -> None:
    """The damaged pack is the default pack, of a copy of this package."""
    images = list(pack.glob("*.so"))
    for image in images:
        damage(image)
    copy = pack.parent / "site" / "tf_tvm_ops"
    installed = Path(tf_tvm_ops.__file__).parent
    shutil.copytree(installed, copy, ignore=shutil.ignore_patterns("packs", "__pycache__"))
    shutil.move(pack, copy / "packs" / "default")
    done = run_with_tensorflow(f"import sys\nsys.path.insert(0, {str(copy.parent)!r})\n{_CODE}")
    assert done.returncode == 0, done.stderr
    assert 1 <= len(own_messages(done.stderr)) <= len(images)
    assert done.stdout.strip() == server


def test_folder_without_a_manifest(tmp_path: Path) -> None:
    done = run_with_tensorflow(_CODE, TF_TVM_OPS_PACKS=str(tmp_path))
    assert done.returncode == 0, done.stderr
    (message,) = own_messages(done.stderr)
    assert str(tmp_path) in message
    with pytest.raises(tf_tvm_ops.packs.PackError, match=str(tmp_path)):
        tf_tvm_ops.packs.load(tmp_path)


def test_loading_a_pack_while_serving(pack: Path) -> None:
    loaded = tf_tvm_ops.packs.load(pack)
    assert loaded.path == pack.resolve()
    assert loaded.kernels > 0
    assert tf_tvm_ops.packs.loaded()[0] == loaded
