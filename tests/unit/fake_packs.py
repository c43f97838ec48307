"""Packs whose kernels are plain C loops, so that the dispatcher can be tested without TVM."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

V3 = "cpu:x86-64-v3"
V4 = "cpu:x86-64-v4"
V4_BF16 = "cpu:x86-64-v4-bf16"
AMX_BF16 = "cpu:x86-64-v4-amx-bf16"
AMX_FP16 = "cpu:x86-64-v4-amx-fp16"

HEADER = Path(__file__).with_name("fake_kernels.h")


@dataclass(frozen=True)
class FakeKernel:
    """One kernel; ``extents`` None makes it generic.

    ``behaviour`` is ``"product"``, ``"scratch"`` (a product by way of the workspace), ``"fail"``,
    or ``"describe"`` (fails with the arguments from ``begin`` on).
    """

    extents: tuple[int, int, int] | None = None
    lhs: str = "k"
    rhs: str = "n"
    dtype: str = "float32"
    behaviour: str = "product"
    workspace_bytes: int = 0

    @property
    def symbol(self) -> str:
        size = "x".join(map(str, self.extents)) if self.extents else "generic"
        return f"fake_{self.dtype}_{size}_l{self.lhs}_r{self.rhs}_{self.behaviour}"

    def source(self) -> str:
        m, n, k = self.extents or (0, 0, 0)
        return (
            f"FAKE_KERNEL({self.symbol}, {int(self.extents is None)}, {self.dtype.upper()}, "
            f"LHS_{self.lhs.upper()}, RHS_{self.rhs.upper()}, {m}, {n}, {k}, "
            f"{self.behaviour.upper()})"
        )

    def entry(self) -> dict[str, Any]:
        m, n, k = self.extents or (None, None, None)
        problem = {"dtype": self.dtype, "m": m, "n": n, "k": k}
        return {
            "symbol": self.symbol,
            "problem": {**problem, "lhs": self.lhs, "rhs": self.rhs},
            "config": {"rule": "fake", "unroll": 4},
            "workspace_bytes": self.workspace_bytes,
        }


# What a generic kernel of behaviour "describe" is given, in order.
ARGUMENTS = (
    *("begin", "end", "heads"),
    *(f"lhs_{name}" for name in ("batch_stride", "head_stride", "stride")),
    *(f"rhs_{name}" for name in ("batch_stride", "head_stride", "stride")),
    *(f"addend_{name}" for name in ("batch_stride", "head_stride", "stride", "kind")),
    *(f"out_{name}" for name in ("batch_stride", "head_stride", "stride")),
    *("scale", "m", "n", "k"),
)

DTYPES = ("float32", "float16", "bfloat16", "float64")


def generic_kernels(dtype: str) -> tuple[FakeKernel, ...]:
    """One for each order of the operands."""
    return tuple(FakeKernel(None, lhs, rhs, dtype) for lhs in "km" for rhs in "nk")


GENERIC = generic_kernels("float32")


def compile_image(kernels: Sequence[FakeKernel], image: Path, tag: str = "") -> None:
    """Compile the kernels to a shared library, which ``tag`` makes unlike others."""
    spec = importlib.util.find_spec("tvm_ffi")
    assert spec is not None
    assert spec.origin is not None
    include = Path(spec.origin).parent / "include"
    lines = [f'#include "{HEADER}"', *(kernel.source() for kernel in kernels)]
    lines.append(f'const char fake_tag[] = "{tag}";')
    options = ("-x", "c", "-std=c11", "-O1", "-mf16c", "-shared", "-fPIC", f"-I{include}")
    subprocess.run(
        [os.environ.get("CC", "cc"), *options, "-o", str(image), "-"],
        input="\n".join(lines),
        text=True,
        check=True,
    )


def write_pack(folder: Path, images: Mapping[str, Sequence[FakeKernel]]) -> Path:
    """Make a pack with an image for each target."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for target, kernels in images.items():
        built = folder / "new.so"
        compile_image(kernels, built, f"{folder} {target}")
        data = built.read_bytes()
        sha256 = hashlib.sha256(data).hexdigest()
        name = f"{target.replace(':', '-')}-{sha256[:16]}.so"
        built.rename(folder / name)
        entries.append(
            {
                "target": target,
                "file": name,
                "bytes": len(data),
                "sha256": sha256,
                "kernels": [kernel.entry() for kernel in kernels],
            }
        )
    manifest = {"schema": 1, "abi": 2, "made_with": {"tests": "1"}, "images": entries}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1))
    return folder


def edit_manifest(pack: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """Change the manifest in place."""
    path = pack / "manifest.json"
    manifest = json.loads(path.read_text())
    edit(manifest)
    path.write_text(json.dumps(manifest))


def image_of(pack: Path, target: str) -> Path:
    """The file of the image for a target."""
    manifest = json.loads((pack / "manifest.json").read_text())
    (name,) = (image["file"] for image in manifest["images"] if image["target"] == target)
    return pack / str(name)


def flip_byte(path: Path, offset: int) -> None:
    """Damage a file without changing its size."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 0xFF
    path.write_bytes(data)
