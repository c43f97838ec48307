"""TvmBatchMatMul against the oracle: shapes, layouts, sizes, special values, ways to run it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings

from tf_tvm_ops import batch_matmul
from tf_tvm_ops.ops import served_by

from ..cases import (
    ADJOINTS,
    Case,
    listed,
    many_alternating_batches,
    product,
    random_cases,
)
from ..oracle import Array, check_matmul
from .processes import output_of


@pytest.mark.parametrize("case", listed(), ids=str)
def test_listed_products(case: Case) -> None:
    lhs, rhs = case.operands()
    got = batch_matmul(lhs, rhs, case.adj_x, case.adj_y)
    check_matmul(got, lhs, rhs, case.adj_x, case.adj_y)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(random_cases())
def test_random_products(case: Case) -> None:
    lhs, rhs = case.operands()
    got = batch_matmul(lhs, rhs, case.adj_x, case.adj_y)
    check_matmul(got, lhs, rhs, case.adj_x, case.adj_y)


@pytest.mark.parametrize("batch", [65535, 65536, 131072])
def test_many_matrices_of_one_element(batch: int) -> None:
    ones = np.ones((batch, 1, 1), np.float32)
    got = batch_matmul(ones, ones).numpy()
    assert got.shape == (batch, 1, 1)
    assert (got == 1).all()


def test_many_small_matrices() -> None:
    lhs = np.ones((65536, 16, 8), np.float32)
    rhs = np.ones((65536, 8, 16), np.float32)
    got = batch_matmul(lhs, rhs).numpy()
    assert got.shape == (65536, 16, 16)
    assert (got == 8).all()


@pytest.mark.parametrize("adj_x", [False, True])
def test_many_rows(adj_x: bool) -> None:
    rows = 2**21 + 10
    lhs = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2) % 97
    rhs = np.array([[1, 2], [3, 4]], np.float32)
    got = batch_matmul(lhs.T.copy() if adj_x else lhs, rhs, adj_x=adj_x).numpy()
    np.testing.assert_array_equal(got, lhs @ rhs)


@pytest.mark.parametrize("adj_y", [False, True])
def test_nan_stays_in_its_row(adj_y: bool) -> None:
    """A kernel that pads K must not multiply the padding by what lies beyond a row."""
    lhs, rhs = Case((1, 3, 33), (1, 7, 33) if adj_y else (1, 33, 7), adj_y=adj_y).operands()
    lhs[:, 1:] = np.nan
    got = batch_matmul(lhs, rhs, adj_y=adj_y)
    check_matmul(got, lhs, rhs, adj_y=adj_y)
    assert np.isfinite(got.numpy()[:, 0]).all()
    assert np.isnan(got.numpy()[:, 1:]).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("extent", [1, 7, 17, 33])
def test_special_values_reach_their_row(value: float, extent: int) -> None:
    """Also through a zero of the other operand: 0·NaN is NaN."""
    lhs, rhs = Case((2, extent, extent), (2, extent, extent)).operands()
    lhs[1, extent // 2, extent - 1] = value
    rhs[1, extent - 1, 0] = 0
    check_matmul(batch_matmul(lhs, rhs), lhs, rhs)


def _misaligned(x: Array) -> tf.Tensor:
    """``x`` one element off the alignment of TensorFlow's own buffers."""
    room = np.empty(x.size + 32, np.float32)
    start = (-room.ctypes.data // 4) % 16 + 1
    view = room[start : start + x.size].reshape(x.shape)
    view[...] = x
    assert view.ctypes.data % 64 == 4
    return tf.experimental.dlpack.from_dlpack(view.__dlpack__())


@pytest.mark.parametrize("adj_x", [False, True])
@pytest.mark.parametrize("adj_y", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(3, 7, 33), (1, 17, 64), (7, 7, 7), (2, 300, 200)])
def test_misaligned_operands(m: int, n: int, k: int, adj_x: bool, adj_y: bool) -> None:
    case = Case((2, k, m) if adj_x else (2, m, k), (2, n, k) if adj_y else (2, k, n), adj_x, adj_y)
    lhs, rhs = case.operands()
    got = batch_matmul(_misaligned(lhs), _misaligned(rhs), adj_x, adj_y)
    check_matmul(got, lhs, rhs, adj_x, adj_y)


def test_more_batch_dimensions_than_the_dispatcher_takes() -> None:
    lhs, rhs = many_alternating_batches().operands()
    assert served_by(lhs, rhs).numpy() == b"stock (rank)"
    check_matmul(batch_matmul(lhs, rhs), lhs, rhs)


@pytest.mark.parametrize(("adj_x", "adj_y"), ADJOINTS)
def test_every_layout_is_served_by_a_kernel(adj_x: bool, adj_y: bool) -> None:
    """Transposed operands are strides, not copies, and not a reason for stock."""
    lhs, rhs = product((2, 3), 11, 13, 19, adj_x, adj_y, rhs_batch=(3,)).operands()
    kind = f"bmm_f32_generic_l{'m' if adj_x else 'k'}_r{'k' if adj_y else 'n'}"
    assert served_by(lhs, rhs, adj_x, adj_y).numpy().decode().startswith(kind)


def test_empty_products_need_no_kernel() -> None:
    assert served_by(tf.ones([2, 3, 0]), tf.ones([2, 0, 4])).numpy() == b"zeros"
    assert served_by(tf.ones([0, 3, 2]), tf.ones([2, 4])).numpy() == b"zeros"


def test_unknown_shapes() -> None:
    """One function serves any ranks and extents."""
    unknown = tf.TensorSpec(None, tf.float32)

    multiply = tf.function(batch_matmul, input_signature=[unknown, unknown], autograph=False)
    for case in (Case((3, 4), (4, 5)), Case((2, 1, 3, 4), (6, 4, 5)), Case((2, 3, 0), (0, 4))):
        lhs, rhs = case.operands()
        check_matmul(multiply(lhs, rhs), lhs, rhs)


@pytest.mark.parametrize(
    ("lhs", "rhs", "adj_x", "adj_y", "output"),
    [
        ([2, 3, 4], [2, 4, 5], False, False, [2, 3, 5]),
        ([None, 3, 4], [2, 4, 5], False, False, [2, 3, 5]),
        ([None, 3, 4], [None, 4, 5], False, False, [None, 3, 5]),
        ([7, 1, None, 4], [5, 4, None], False, False, [7, 5, None, None]),
        ([4, None], [6, 4], True, True, [None, 6]),
        (None, [4, 5], False, False, None),
        ([2, 3, 4], None, False, False, None),
        ([2, 3, 0], [0, 5], False, False, [2, 3, 5]),
    ],
)
def test_static_shapes(lhs: Any, rhs: Any, adj_x: bool, adj_y: bool, output: Any) -> None:
    """As those of stock, of which nothing is run here."""
    with tf.Graph().as_default():
        a, b = (tf.compat.v1.placeholder(tf.float32, shape) for shape in (lhs, rhs))
        got = batch_matmul(a, b, adj_x, adj_y).shape
        stock = tf.raw_ops.BatchMatMulV2(x=a, y=b, adj_x=adj_x, adj_y=adj_y).shape
    want = tf.TensorShape(output)
    assert (got.rank, list(got) if got.rank else None) == (
        want.rank,
        list(want) if want.rank else None,
    )
    assert str(got) == str(stock)


def test_session() -> None:
    lhs, rhs = Case((2, 17, 64), (2, 17, 64), adj_y=True).operands()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        a = tf.compat.v1.placeholder(tf.float32, [None, None, 64])
        b = tf.compat.v1.placeholder(tf.float32, [None, None, 64])
        scores = batch_matmul(a, b, adj_y=True, name="scores")
        assert scores.name == "scores:0"
        check_matmul(session.run(scores, {a: lhs, b: rhs}), lhs, rhs, adj_y=True)


def test_control_flow_and_nested_functions() -> None:
    lhs, rhs = Case((2, 5, 5), (2, 5, 5)).operands()

    inner = tf.function(batch_matmul, autograph=False)

    def outer(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        _, power = tf.while_loop(
            lambda i, _: i < 3, lambda i, x: (i + 1, inner(x, b)), (0, a), maximum_iterations=9
        )
        return tf.cond(tf.reduce_sum(b) > 1e9, lambda: b, lambda: power)

    want = lhs.astype(np.float64)
    for _ in range(3):
        want = want @ rhs
    np.testing.assert_allclose(tf.function(outer)(lhs, rhs), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fallback", ["auto", "generic", "stock"])
def test_result_does_not_depend_on_the_number_of_threads(fallback: str) -> None:
    """Bit for bit. The pool of threads is made once in a process."""
    code = """
        import hashlib, sys
        import numpy as np
        import tensorflow as tf
        tf.config.threading.set_intra_op_parallelism_threads({threads})
        from tf_tvm_ops import batch_matmul
        rng = np.random.default_rng(0)
        digest = hashlib.sha256()
        for lhs, rhs in (
            ((512, 17, 64), (512, 64, 17)),
            ((512, 1, 128), (512, 128, 17)),
            ((3, 64, 23, 29), (3, 1, 29, 31)),
            ((4097, 5, 7), (4097, 7, 3)),
        ):
            a, b = (rng.random(s, dtype=np.float32) for s in (lhs, rhs))
            digest.update(batch_matmul(a, b).numpy().tobytes())
        print(digest.hexdigest())
    """
    one, two, three = (
        output_of(code.format(threads=n), TF_TVM_OPS_FALLBACK=fallback) for n in (1, 2, 3)
    )
    assert one == two == three


def test_many_callers_at_once() -> None:
    """32 threads, mixed shapes, the first use of every kernel among them; bit for bit as serial."""
    print_ = output_of(
        """
        import threading
        import numpy as np
        from tf_tvm_ops import batch_matmul
        rng = np.random.default_rng(0)
        shapes = [((4, m, 64), (4, n, 64)) for m in (1, 7, 17, 30) for n in (3, 17, 30, 32)]
        operands = [tuple(rng.random(s, dtype=np.float32) for s in pair) for pair in shapes]
        gate = threading.Barrier(32)
        results = [[] for _ in range(32)]

        def work(index):
            gate.wait()
            for i in range(64):
                a, b = operands[(index + i) % len(operands)]
                results[index].append(batch_matmul(a, b, adj_y=True).numpy())

        threads = [threading.Thread(target=work, args=(i,)) for i in range(32)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        serial = [batch_matmul(a, b, adj_y=True).numpy() for a, b in operands]
        for (a, b), got in zip(operands, serial):
            np.testing.assert_allclose(got, a @ b.swapaxes(1, 2), rtol=1e-5)
        compared = 0
        for index, found in enumerate(results):
            for i, got in enumerate(found):
                assert np.array_equal(got, serial[(index + i) % len(serial)])
                compared += 1
        print(compared)
        """
    )
    assert print_ == str(32 * 64)


def test_exit_right_after_a_call() -> None:
    output_of(
        """
        import tensorflow as tf
        from tf_tvm_ops import batch_matmul
        batch_matmul(tf.ones([512, 17, 64]), tf.ones([512, 64, 17]))
        """
    )


def test_exit_while_a_thread_runs() -> None:
    done = output_of(
        """
        import threading
        import tensorflow as tf
        from tf_tvm_ops import batch_matmul
        a = tf.ones([512, 17, 64])
        started = threading.Event()

        def work():
            while True:
                batch_matmul(a, a, adj_y=True)
                started.set()

        threading.Thread(target=work, daemon=True).start()
        assert started.wait(60)
        print("running")
        """
    )
    assert done == "running"
