"""A pack whose kernels compute nothing but leave a mark: it shows which kernel really ran."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tf_tvm_ops.kernels.manifest import (
    ImageEntry,
    KernelEntry,
    Manifest,
    file_sha256,
    image_name,
)
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.publish import publish

GENERIC_MARK = 1000.0
EXACT_MARK = 2000.0
FAILING = (5, 6, 7)
"""Extents of a problem whose kernel reports an error."""

_TARGET = "cpu:x86-64-v3"
_ABI = 2  # of cc/dispatch/kernel.h

_PRELUDE = r"""
#include <stdint.h>

/* An argument and a result of a tvm-ffi function. */
typedef struct {
  int32_t type_index;
  uint32_t padding;
  union { int64_t integer; void* pointer; } value;
} Any;

void TVMFFIErrorSetRaisedFromCStrParts(const char* kind, const char** parts, int32_t count);

/* In the order of cc/dispatch/kernel.h. */
enum { OUT = 3, BEGIN = 5, END = 6, HEADS = 7, OUT_BATCH = 18, OUT_HEAD = 19, OUT_ROW = 20 };

static void mark(const Any* a, int64_t m, int64_t n, float value) {
  float* out = a[OUT].value.pointer;
  const int64_t heads = a[HEADS].value.integer;
  for (int64_t i = a[BEGIN].value.integer; i < a[END].value.integer; ++i)
    for (int64_t row = 0; row < m; ++row)
      for (int64_t column = 0; column < n; ++column)
        out[i / heads * a[OUT_BATCH].value.integer + i % heads * a[OUT_HEAD].value.integer +
            row * a[OUT_ROW].value.integer + column] = value;
}
"""


def write(folder: Path, exact: tuple[int, int, int]) -> Path:
    """Make a pack in ``folder`` with generic kernels, one for ``exact`` and one for `FAILING`.

    ``exact`` is M, N, K; the operands are row-major.
    """
    kernels, source = [], _PRELUDE
    for lhs in ("k", "m"):
        for rhs in ("n", "k"):
            symbol = f"mark_generic_l{lhs}_r{rhs}"
            kernels.append(KernelEntry(symbol, Problem(None, None, None, lhs, rhs), {}, 0))
            extents = "a[22].value.integer, a[23].value.integer"
            source += _function(symbol, f"mark(a, {extents}, {GENERIC_MARK}f); return 0;")
    m, n, k = exact
    kernels.append(KernelEntry("mark_exact", Problem(m, n, k), {}, 0))
    source += _function("mark_exact", f"mark(a, {m}, {n}, {EXACT_MARK}f); return 0;")
    kernels.append(KernelEntry("mark_failing", Problem(*FAILING), {}, 0))
    source += _function(
        "mark_failing",
        'const char* text = "out of luck"; '
        'TVMFFIErrorSetRaisedFromCStrParts("RuntimeError", &text, 1); return -1;',
    )

    built = folder / "image.so"
    c_file = folder / "image.c"
    c_file.write_text(source, encoding="utf-8")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(built), str(c_file)], check=True)
    sha256 = file_sha256(built)
    name = image_name(_TARGET, sha256)
    image = ImageEntry(_TARGET, name, built.stat().st_size, sha256, tuple(kernels))
    pack = folder / "pack"
    publish(pack, Manifest(_ABI, {}, (image,)), {name: built})
    return pack


def _function(symbol: str, body: str) -> str:
    arguments = "void* self, const Any* a, int32_t count, Any* result"
    return f"int __tvm_ffi_{symbol}({arguments}) {{ {body} }}\n"
