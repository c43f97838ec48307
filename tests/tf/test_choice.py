"""Which implementation serves a product, by the environment and by what the packs hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from . import marker_pack
from .processes import own_messages, run_with_tensorflow

EXACT = (4, 6, 8)
SMALL = (4, 6, 9)
LARGE = (300, 300, 300)

_CODE = """
import json
import numpy as np
from tf_tvm_ops import batch_matmul, batch_matmul_add, batch_matmul_transpose
from tf_tvm_ops.ops import served_by


def ran(got, want):
    if (got == 1000).all():
        return "generic"
    if (got == 2000).all():
        return "exact"
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    return "product"


found = {}
for m, n, k in json.loads(SHAPES):
    rng = np.random.default_rng(0)
    a = rng.random((2, m, k), dtype=np.float32) - 0.5
    b = rng.random((2, k, n), dtype=np.float32) - 0.5
    mask = np.zeros((2, m, n), np.float32)
    want = a.astype(np.float64) @ b
    plain = {
        ran(batch_matmul(a, b).numpy(), want),
        ran(batch_matmul_add(a, b, np.zeros((3, 1, 1, 1), np.float32)).numpy(), [want] * 3),
    }
    # Stock would need another pass over memory for each of these.
    more = {
        ran(batch_matmul(a, b, scale=0.5).numpy(), want * 0.5),
        ran(batch_matmul_add(a, b, mask).numpy(), want),
        ran(batch_matmul_add(a, b, mask[:, :1, :1], scale=2.0).numpy(), want * 2),
        ran(batch_matmul_transpose(a, b).numpy(), want.swapaxes(0, 1)),
        ran(batch_matmul(a.swapaxes(0, 1), b, a_length_first=True).numpy(), want),
    }
    servers = {
        served_by(a, b, **options).numpy().decode()
        for options in ({"scale": 0.5}, {"has_addend": True}, {"transpose": True})
    }
    found[f"{m}x{n}x{k}"] = [*plain, served_by(a, b).numpy().decode(), *more, *servers]
print(json.dumps(found))
"""


def _serve(*shapes: tuple[int, int, int], **environment: str) -> tuple[dict[str, list[str]], str]:
    """For each shape what ran and what is said to serve it; and what was written to stderr."""
    code = f"SHAPES = {json.dumps(shapes)!r}\n{_CODE}"
    done = run_with_tensorflow(code, **environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found, done.stderr


@pytest.fixture(scope="module")
def marks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return marker_pack.write(tmp_path_factory.mktemp("marks"), EXACT)


# What ran and what is said to serve the bare product, and the same with something fused.
_GENERIC = ["generic", "mark_generic_lk_rn"] * 2
_STOCK = ["product", "stock (no_kernel)"] * 2
_STOCK_UNLESS_FUSED = [*_STOCK[:2], *_GENERIC[:2]]


@pytest.mark.parametrize(
    ("fallback", "onednn", "small", "large"),
    [
        ("auto", "1", _GENERIC, _STOCK_UNLESS_FUSED),
        ("auto", "0", _GENERIC, _GENERIC),
        ("", "1", _GENERIC, _STOCK_UNLESS_FUSED),
        ("generic", "1", _GENERIC, _GENERIC),
        ("stock", "1", _STOCK, _STOCK),
        ("stock", "0", _STOCK, _STOCK),
    ],
)
def test_fallback(
    marks: Path, fallback: str, onednn: str, small: list[str], large: list[str]
) -> None:
    """A kernel made for the problem comes first, whatever the fallback."""
    found, stderr = _serve(
        EXACT,
        SMALL,
        LARGE,
        TF_TVM_OPS_PACKS=str(marks),
        TF_TVM_OPS_FALLBACK=fallback,
        TF_ENABLE_ONEDNN_OPTS=onednn,
    )
    assert found == {
        "4x6x8": ["exact", "mark_exact"] * 2,
        "4x6x9": small,
        "300x300x300": large,
    }
    assert own_messages(stderr) == []


@pytest.mark.parametrize("fallback", ["auto", "generic", "stock"])
def test_answers_of_the_default_pack(fallback: str) -> None:
    found, stderr = _serve(
        (1, 17, 128), (17, 17, 64), (11, 13, 19), (130, 70, 50), TF_TVM_OPS_FALLBACK=fallback
    )
    assert [ran for ran, *_ in found.values()] == ["product"] * 4
    assert found["1x17x128"][1].startswith("bmm_f32_m1_n17_k128_lk_rn_")
    assert found["17x17x64"][1].startswith("bmm_f32_m17_n17_k64_lk_rn_")
    other = found["11x13x19"][1]
    if fallback == "stock":
        assert other == "stock (no_kernel)"
    else:
        assert other.startswith("bmm_f32_generic_lk_rn")
    assert own_messages(stderr) == []


def test_unknown_fallback_is_one_warning() -> None:
    found, stderr = _serve(SMALL, SMALL, TF_TVM_OPS_FALLBACK="fastest")
    assert found["4x6x9"][0] == "product"
    assert found["4x6x9"][1].startswith("bmm_f32_generic")
    (message,) = own_messages(stderr)
    for word in ("TF_TVM_OPS_FALLBACK", "fastest", "auto", "generic", "stock"):
        assert word in message


def test_no_target_means_stock() -> None:
    found, _ = _serve((17, 17, 64), SMALL, TF_TVM_OPS_CPU_TARGET="none")
    assert found == {"17x17x64": _STOCK, "4x6x9": _STOCK}


@pytest.mark.parametrize(
    ("fallback", "expected"),
    [
        ("stock", ["product", "stock (kernel_failed)"] * 2),
        ("generic", ["generic", "mark_generic_lk_rn"] * 2),
    ],
)
def test_kernel_that_fails_is_passed_over(marks: Path, fallback: str, expected: list[str]) -> None:
    """By the call that finds out and by all later ones, with one warning, in every way to call."""
    failing = marker_pack.FAILING
    found, stderr = _serve(
        failing, EXACT, failing, TF_TVM_OPS_PACKS=str(marks), TF_TVM_OPS_FALLBACK=fallback
    )
    assert found == {"5x6x7": expected, "4x6x8": ["exact", "mark_exact"] * 2}
    (message,) = own_messages(stderr)
    for word in ("warning", "mark_failing", "cpu:x86-64-v3", str(marks), "out of luck"):
        assert word in message


def test_kernel_that_fails_is_passed_over_by_threads_and_graphs(marks: Path) -> None:
    """Large enough to be shared among threads, all of whose calls fail."""
    m, n, k = marker_pack.FAILING
    done = run_with_tensorflow(
        f"""
        import numpy as np
        import tensorflow as tf
        import tf_tvm_ops
        from tf_tvm_ops import batch_matmul

        a = tf.ones([20000, {m}, {k}])
        b = tf.ones([20000, {k}, {n}])
        assert (batch_matmul(a, b).numpy() == {k}).all()
        product = tf.function(lambda a, b: tf.matmul(a, b) * 1.0)
        assert (product(a, b).numpy() == {k}).all()
        (outcome,) = tf_tvm_ops.rewrite.report().outcomes
        print(outcome.reason, outcome.detail)
        """,
        TF_TVM_OPS_PACKS=str(marks),
        TF_TVM_OPS_FALLBACK="stock",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "stock kernel_failed"
    assert len(own_messages(done.stderr)) == 1


def test_benchmark_refuses_a_kernel_that_fails_when_it_is_called(marks: Path) -> None:
    """What was timed is what served then."""
    m, n, k = marker_pack.FAILING
    for module in ("fused", "worker"):
        done = run_with_tensorflow(
            f"""
            from tf_tvm_ops.tools.bench import fused, runner, worker
            from tf_tvm_ops.tools.bench.cases import Case

            case = Case("failing", (2, 2, {m}, {k}), (2, 2, {k}, {n}), False, False)
            job = runner.make_job([case], ("hot",), ({str(marks)!r},), 0.001, 3)
            {module}.measure(job)
            """,
            TF_TVM_OPS_FALLBACK="stock",
        )
        assert done.returncode != 0
        last = done.stderr.strip().splitlines()[-1]
        assert "FailedKernelError: mark_failing failed at [2, 2] 5×7 · 7×6, which stock" in last
        # It is to blame, and nothing was measured.
        assert "samples" not in done.stdout
        assert module == "worker" or '"running": "ours"' in done.stdout.splitlines()[-1]
