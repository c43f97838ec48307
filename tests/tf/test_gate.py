"""What the measurements in a pack's manifest decide: a kernel that lost to stock does not serve."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.unit.fake_packs import edit_manifest
from tf_tvm_ops.kernels.manifest import Duel, Timing
from tf_tvm_ops.kernels.tuning.fallback_model import features

from . import marker_pack
from .processes import output_with_tensorflow

EXACT = (4, 6, 8)
WON, LOST = Duel(1.0, 2.0, 0.5), Duel(2.0, 1.0, 0.1)
TOO_CLOSE = Duel(1.0, 1.2, 0.3)


def timing(
    onednn: Duel | None,
    eigen: Duel | None = WON,
    *,
    matrices: int = 2,
    epilogue: str = "none",
    cache: str = "hot",
) -> Timing:
    return Timing(matrices, 2, cache, epilogue, onednn, eigen)


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    return marker_pack.write(tmp_path, EXACT)


def put(pack: Path, symbol: str, **fields: object) -> None:
    """Add fields to a kernel of a manifest."""

    def edit(manifest: dict) -> None:
        (image,) = manifest["images"]
        (kernel,) = (k for k in image["kernels"] if k["symbol"] == symbol)
        kernel.update(fields)

    edit_manifest(pack, edit)


_SERVE = """
import json, numpy as np
import tf_tvm_ops
from tf_tvm_ops.ops import served_by
found = []
for shape, flags in json.loads(CASES):
    batch, m, n, k = shape
    a, b = np.ones((batch, 1, m, k), "f"), np.ones((batch, 1, k, n), "f")
    found.append(served_by(a, b, **flags).numpy().decode())
    if not flags:
        got = tf_tvm_ops.batch_matmul(a, b).numpy()
        stock = found[-1].startswith("stock")
        assert (got == k).all() == stock, (shape, found[-1])
print(json.dumps(found))
"""


def serve(pack: Path, *cases: tuple[tuple[int, ...], dict], **environment: str) -> list[str]:
    """What serves products of a batch, M, N and K."""
    code = f"CASES = {json.dumps(cases)!r}\n{_SERVE}"
    found: list[str] = json.loads(
        output_with_tensorflow(code, TF_TVM_OPS_PACKS=str(pack), **environment)
    )
    return found


PLAIN = ((2, *EXACT), {})
FASTER = "stock (stock_faster)"


@pytest.mark.parametrize(
    ("timings", "onednn", "eigen"),
    [
        ([timing(WON)], "mark_exact", "mark_exact"),
        ([timing(LOST)], FASTER, "mark_exact"),
        ([timing(WON, LOST)], "mark_exact", FASTER),
        ([timing(TOO_CLOSE)], FASTER, "mark_exact"),
        # What is won in one setting is served unless it is lost in another.
        ([timing(WON), timing(TOO_CLOSE, cache="cold")], "mark_exact", "mark_exact"),
        ([timing(TOO_CLOSE), timing(WON, cache="cold")], "mark_exact", "mark_exact"),
        ([timing(TOO_CLOSE), timing(TOO_CLOSE, cache="cold")], FASTER, "mark_exact"),
        ([timing(TOO_CLOSE), timing(LOST, cache="cold")], FASTER, "mark_exact"),
        # A win with operands in cache does not make up for a loss without.
        ([timing(WON), timing(LOST, cache="cold")], FASTER, "mark_exact"),
        ([timing(LOST, cache="cold"), timing(WON)], FASTER, "mark_exact"),
        # Where stock ended the process the kernel serves; the other half counts all the same.
        ([timing(None)], "mark_exact", "mark_exact"),
        ([timing(None, LOST)], "mark_exact", FASTER),
        ([timing(LOST, None)], FASTER, "mark_exact"),
        ([timing(LOST), timing(None, cache="cold")], "mark_exact", "mark_exact"),
        ([timing(None, cache="cold"), timing(LOST)], "mark_exact", "mark_exact"),
    ],
)
def test_kernel_serves_where_it_won(
    pack: Path, timings: list[Timing], onednn: str, eigen: str
) -> None:
    put(pack, "mark_exact", timings=[t.to_json() for t in timings])
    assert serve(pack, PLAIN, TF_ENABLE_ONEDNN_OPTS="1") == [onednn]
    assert serve(pack, PLAIN, TF_ENABLE_ONEDNN_OPTS="0") == [eigen]


def test_fusing_counts(pack: Path) -> None:
    lost = [timing(LOST), timing(WON, epilogue="add"), timing(LOST, epilogue="transpose")]
    put(pack, "mark_exact", timings=[t.to_json() for t in lost])
    add = {"scale": 0.5, "has_addend": True}
    ways = ({}, add, {"has_addend": True}, {"scale": 0.5}, {"transpose": True})
    found = serve(pack, *(((2, *EXACT), way) for way in ways), TF_ENABLE_ONEDNN_OPTS="1")
    assert found == [FASTER, "mark_exact", FASTER, FASTER, FASTER]


def test_what_lost_fused_does_not_serve_fused(pack: Path) -> None:
    """Though it won bare; what was not measured fused does."""
    timings = [timing(WON), timing(LOST, epilogue="add")]
    put(pack, "mark_exact", timings=[t.to_json() for t in timings])
    ways = ({}, {"scale": 0.5, "has_addend": True}, {"transpose": True})
    found = serve(pack, *(((2, *EXACT), way) for way in ways), TF_ENABLE_ONEDNN_OPTS="1")
    assert found == ["mark_exact", FASTER, "mark_exact"]


def test_nearest_number_of_matrices_decides(pack: Path) -> None:
    timings = [timing(LOST, matrices=8), timing(WON, matrices=512)]
    put(pack, "mark_exact", timings=[t.to_json() for t in timings])
    batches = (1, 8, 63, 65, 512, 4096)
    found = serve(pack, *(((b, *EXACT), {}) for b in batches), TF_ENABLE_ONEDNN_OPTS="1")
    assert found == [FASTER] * 3 + ["mark_exact"] * 3


def test_rewriter_leaves_alone_what_stock_does_faster(pack: Path) -> None:
    put(pack, "mark_exact", timings=[timing(LOST).to_json()])
    code = """
    import tensorflow as tf
    import tf_tvm_ops
    tf_tvm_ops.load()
    product = tf.function(lambda a, b: tf.matmul(a, b) * 1.0)
    product(tf.ones((2, 4, 8)), tf.ones((2, 8, 6)))
    for outcome in tf_tvm_ops.rewrite.report().outcomes:
        print(outcome.reason, outcome.detail)
    """
    assert output_with_tensorflow(code, TF_TVM_OPS_PACKS=str(pack)) == "stock stock_faster"


def random_model(rng: np.random.Generator) -> dict[str, list[float]]:
    """Weights that make each part of a product of ordinary size cost about as much."""
    typical = features(8, 20, 20, 20)
    model = {name: list(rng.random(8) * 100 / typical) for name in ("kernel", "onednn", "eigen")}
    return {**model, "pass": [rng.random() * 50, rng.random() * 0.05]}


def expected(
    model: dict[str, list[float]], case: tuple[int, ...], flags: dict, onednn: bool
) -> str:
    terms = features(*case)
    batch, m, n, _ = case
    passes = len({"scale", "has_addend", "transpose"} & flags.keys())
    once = model["pass"][0] + model["pass"][1] * batch * m * n
    stock = terms @ model["onednn" if onednn else "eigen"] + passes * once
    return "mark_generic_lk_rn" if terms @ model["kernel"] < stock else "stock (no_kernel)"


@pytest.mark.parametrize("onednn", ["1", "0"])
def test_fallback_follows_the_model(pack: Path, onednn: str) -> None:
    """The model that Python fits is the one that C++ evaluates."""
    rng = np.random.default_rng(int(onednn))
    model = random_model(rng)
    put(pack, "mark_generic_lk_rn", model=model)
    cases = []
    for _ in range(200):
        shape = tuple(int(x) for x in rng.integers(2, 60, 4))
        ways = ({}, {"scale": 0.5}, {"has_addend": True, "scale": 0.5}, {"transpose": True})
        cases.append((shape, ways[rng.integers(len(ways))]))
    want = [expected(model, shape, flags, onednn == "1") for shape, flags in cases]
    assert len(set(want)) == 2
    assert serve(pack, *cases, TF_ENABLE_ONEDNN_OPTS=onednn) == want


def test_model_does_not_overrule_the_user(pack: Path) -> None:
    never = {"kernel": [1e6] * 8, "onednn": [0.0] * 8, "eigen": [0.0] * 8, "pass": [0.0, 0.0]}
    put(pack, "mark_generic_lk_rn", model=never)
    case = ((2, 4, 6, 9), {})
    assert serve(pack, case) == ["stock (no_kernel)"]
    assert serve(pack, case, TF_TVM_OPS_FALLBACK="generic") == ["mark_generic_lk_rn"]
