"""Einsums that are batched products become the fused ops; others stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from .rewriting import KL, MASK, QL, normal, run

Function = Callable[..., Any]

# Every product of rows m and columns n over k in batches b and h, and Keras' equations with two
# renamings.
EINSUMS = {
    "bhmk,bhkn->bhmn": (),
    "bhmk,bhnk->bhmn": (),
    "bhkm,bhkn->bhmn": (),
    "bmhk,bhkn->bhmn": ("lhs transpose",),
    "bmhk,bnhk->bhmn": ("lhs transpose", "rhs transpose"),
    "bkhm,bkhn->bhmn": ("lhs transpose", "rhs transpose"),
    "bhmk,bkhn->bmhn": ("rhs transpose", "transpose"),
    "bhkn,bhmk->bhmn": (),
    "aecd,abcd->acbe": ("lhs transpose", "rhs transpose"),
    "acbe,aecd->abcd": ("rhs transpose", "transpose"),
    "BTNH,BSNH->BNTS": ("lhs transpose", "rhs transpose"),
    "BNTS,BSNH->BTNH": ("rhs transpose", "transpose"),
    "bmk,bkn->bmn": (),
    "mbk,bkn->mbn": ("lhs transpose", "transpose"),
    "xybhmk,xybhkn->xybhmn": (),
}


def _for_equation(equation: str) -> tuple[Any, Any]:
    """Random operands; each label has an extent of its own."""
    lhs, rhs = equation.split("->")[0].split(",")
    extents = {label: 2 + i for i, label in enumerate(sorted({*lhs, *rhs}))}
    return tuple(normal(*(extents[label] for label in x)) for x in (lhs, rhs))  # type: ignore[return-value]


@pytest.mark.parametrize("equation", EINSUMS)
@pytest.mark.parametrize("known", [True, False])
def test_einsum(equation: str, known: bool) -> None:
    x, y = _for_equation(equation)
    specs = None if known else [tf.TensorSpec(None, t.dtype) for t in (x, y)]
    outcome = run(
        lambda x, y: tf.raw_ops.Einsum(inputs=[x, y], equation=equation), x, y, specs=specs
    ).only()
    transposed = "transpose" in EINSUMS[equation]
    assert outcome.op == ("TvmBatchMatMulTranspose" if transposed else "TvmBatchMatMul")
    assert outcome.parts == EINSUMS[equation]


def test_einsum_with_scale_and_addend() -> None:
    def function(k: Any, q: Any, m: Any) -> Any:
        return tf.einsum("aecd,abcd->acbe", k, q) * 0.25 + m

    outcome = run(function, KL, QL, MASK).only()
    assert outcome.op == "TvmBatchMatMulAdd"
    assert outcome.parts == ("lhs transpose", "rhs transpose", "scale", "addend")


NO_PRODUCTS = {
    "bhmk,kn->bhmn": "projection",
    "abc,cde->abde": "projection",
    "abcd,cde->abe": "projection",
    "ab,c->abc": "projection",
    "bhmk,bhk->bhm": "equation",
    "bhmxk,bhkn->bhmxn": "equation",
    "bhmk,bhkn->bhnm": None,  # the operands swapped
    "bhmk,hbkn->bhmn": "equation",
    "hmkb,hkbn->hmnb": "equation",
    "bhmkx,bhkn->bhmn": "equation",
    "bhmk,bhknx->bhmn": "equation",
    "...mk,...kn->...mn": "equation",
    "bhmk->bhm": "equation",
    "bmm,bmn->bmn": "equation",
}


@pytest.mark.parametrize("equation", NO_PRODUCTS)
def test_einsum_that_is_no_product_of_the_ops(equation: str) -> None:
    if "..." in equation:
        x, y = _for_equation("bhmk,bhkn->bhmn")
    elif "," not in equation:
        x, y = _for_equation("bhmk,bhmk->bhm")
    else:
        x, y = _for_equation(equation)
    inputs = [x, y] if "," in equation else [x]
    result = run(lambda *t: tf.raw_ops.Einsum(inputs=list(t), equation=equation), *inputs)
    reason = NO_PRODUCTS[equation]
    assert result.only().reason == (reason or "")
    assert result.only().rewritten is (reason is None)


def test_einsum_refuses_batches_that_differ() -> None:
    """Stock has an error where BatchMatMulV2 would broadcast; so has the op that replaces it."""
    x, y = normal(1, 4, 5, 16), normal(2, 4, 16, 7)
    specs = [tf.TensorSpec([None] * 4)] * 2

    @tf.function(input_signature=specs)
    def function(x: Any, y: Any) -> Any:
        return tf.raw_ops.Einsum(inputs=[x, y], equation="bhmk,bhkn->bhmn")

    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[1,4,5,16\].*\[2,4,16,7\]"):
        function(x, y)
