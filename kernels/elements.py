"""Element types, and what a kernel adds to a product: known to those who do without TVM, too."""

from __future__ import annotations

COMPUTE_DTYPES = {
    "float32": "float32",
    "float16": "float32",
    "bfloat16": "float32",
    "float64": "float64",
}
"""For each element type, the type that products are summed in."""

ELEMENT_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}

WORKSPACE_ALIGNMENT = 64
"""Bytes that a kernel's scratch memory is aligned to."""

ADD_NOTHING, ADD_MATRIX, ADD_COLUMN = range(3)
"""What a kernel adds to the product; the twin of ``AddendKind`` in ``cc/dispatch/kernel.h``."""
