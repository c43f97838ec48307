"""Control flow, threads and the end of the process, with one of the ops, which share all that."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tf_tvm_ops import batch_matmul

from ..cases import Case
from .processes import output_of, output_with_tensorflow


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
        output_with_tensorflow(code.format(threads=n), TF_TVM_OPS_FALLBACK=fallback)
        for n in (1, 2, 3)
    )
    assert one == two == three


def test_many_callers_at_once() -> None:
    """32 threads, mixed shapes, the first use of every kernel among them; bit for bit as serial."""
    print_ = output_with_tensorflow(
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
