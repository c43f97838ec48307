"""The ops in what TensorFlow and Keras put around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_tvm_ops
from tf_tvm_ops import batch_matmul, batch_matmul_add, batch_matmul_transpose

from ..cases import Case, product
from ..oracle import Array
from .family import check, check_transposed, compute, compute_transposed, has_transpose
from .processes import output_of, output_with_tensorflow


def _stacked_cases() -> list[tuple[Case, tuple[bool, ...]]]:
    """Cases of one iteration, and which inputs differ from one to the next."""
    both = {"a_length_first": True, "b_length_first": True}
    products = (
        product((), 3, 5, 4),
        product((2,), 3, 5, 4, True, True, scale=0.5),
        product((2, 3), 3, 5, 4, rhs_batch=(), adj_y=True),
        product((2, 3), 3, 5, 4, lhs_batch=(3,), **both),
        product((2,), 3, 5, 4, lhs_batch=(), adj_x=True, b_length_first=True),
    )
    sums = (
        product((2,), 3, 5, 4, addend=(5,)),
        product((), 3, 5, 4, addend=(2, 1, 1), scale=2.0),
        product((3,), 3, 5, 4, **both, addend=(2, 1, 3, 5)),
        product((2,), 3, 1, 4, addend=(2, 1, 5)),
    )
    cases: list[tuple[Case, tuple[bool, ...]]] = [
        (case, which) for case in products for which in ((True, True), (True, False), (False, True))
    ]
    for case in sums:
        for which in ((True, True, True), (True, False, False), (False, False, True)):
            cases.append((case, which))
    return cases


def _vectorized(
    case: Case,
    which: Sequence[bool],
    one: Callable[..., Any],
    check_one: Callable[..., None],
    loops: bool,
) -> None:
    count = 4
    inputs: list[list[Array]] = []
    for seed in range(count):
        addend = case.random_addend(seed)
        inputs.append([*case.operands(seed), *([] if addend is None else [addend])])
    stacked = [
        tf.constant(np.stack([x[i] for x in inputs])) if differs else tf.constant(inputs[0][i])
        for i, differs in enumerate(which)
    ]
    differing = tuple(x for x, differs in zip(stacked, which) if differs)
    traced = []

    def iteration(slices: tuple[tf.Tensor, ...]) -> tf.Tensor:
        given = iter(slices)
        return one(*(next(given) if differs else x for x, differs in zip(stacked, which)))

    @tf.function(autograph=False)
    def everything(*elems: tf.Tensor) -> tf.Tensor:
        output = tf.vectorized_map(iteration, elems, fallback_to_while_loop=loops)
        traced.extend(op.type for op in output.graph.get_operations())
        return output

    got = everything(*differing)
    assert any("While" in kind for kind in traced) == loops
    for seed in range(count):
        arrays = [inputs[seed if differs else 0][i] for i, differs in enumerate(which)]
        check_one(got[seed], *arrays)


@pytest.mark.parametrize(("case", "which"), _stacked_cases(), ids=str)
def test_vectorized_map(case: Case, which: tuple[bool, ...]) -> None:
    """Without a loop: every iteration is a batch of one op."""

    def check_one(got: Any, *arrays: Array) -> None:
        check(case, got, *arrays)

    _vectorized(case, which, lambda *x: compute(case, *x), check_one, loops=False)
    if has_transpose(case):
        _vectorized(
            case,
            which,
            lambda *x: compute_transposed(case, *x),
            lambda got, *arrays: check_transposed(case, got, *arrays),
            loops=False,
        )


def test_vectorized_map_without_our_converters(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a TensorFlow that has no place for them: a loop, and the same answer."""
    from tensorflow.python.ops.parallel_for import pfor

    monkeypatch.delitem(pfor._pfor_converter_registry, "TvmBatchMatMulAdd")
    case = product((2,), 3, 5, 4, addend=(5,))
    which = (True, True, False)

    def check_one(got: Any, *arrays: Array) -> None:
        check(case, got, *arrays)

    _vectorized(case, which, lambda *x: compute(case, *x), check_one, loops=True)


def test_vectorized_gradients() -> None:
    """Gradients of each example, as in differentially private training."""
    x, w, bias = (tf.constant(a) for a in (*Case((6, 3, 4), (4, 5)).operands(), np.ones(5, "f")))

    def gradient_of_one(example: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([w, bias])
            loss = tf.reduce_sum(batch_matmul_add(example, w, bias, scale=0.5) ** 2)
        found: list[tf.Tensor] = tape.gradient(loss, [w, bias])
        return found

    for got, want in zip(
        tf.vectorized_map(gradient_of_one, x, fallback_to_while_loop=False),
        tf.map_fn(gradient_of_one, x, fn_output_signature=[tf.float32, tf.float32]),
    ):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def _attention(query: Any, key: Any, value: Any, mask: Any) -> tf.Tensor:
    """Length-first in and out: ``[batch, length, heads, depth]``."""
    scores = batch_matmul_add(
        query,
        key,
        mask,
        adj_y=True,
        scale=query.shape[-1] ** -0.5,
        a_length_first=True,
        b_length_first=True,
    )
    return batch_matmul_transpose(tf.nn.softmax(scores), value, b_length_first=True)


def _stock_attention(query: Any, key: Any, value: Any, mask: Any) -> tf.Tensor:
    query, key, value = (tf.transpose(x, [0, 2, 1, 3]) for x in (query, key, value))
    scores = tf.matmul(query, key, transpose_b=True) * query.shape[-1] ** -0.5 + mask
    return tf.transpose(tf.matmul(tf.nn.softmax(scores), value), [0, 2, 1, 3])


def _attention_inputs() -> list[tf.Tensor]:
    rng = np.random.default_rng(0)
    query, key, value = (rng.standard_normal((2, n, 3, 8), np.float32) for n in (5, 7, 7))
    mask = np.where(np.arange(7) < [[4], [7]], 0, -1e9).astype(np.float32)
    return [tf.constant(x) for x in (query, key, value, mask[:, None, None])]


def test_saved_model(tmp_path: Path) -> None:
    inputs = _attention_inputs()

    class Attention(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.temperature = tf.Variable(2.0)

        @tf.function(
            input_signature=[tf.TensorSpec([None, None, 3, 8])] * 3 + [tf.TensorSpec(None)]
        )
        def __call__(self, query: Any, key: Any, value: Any, mask: Any) -> tf.Tensor:
            return _attention(query * self.temperature, key, value, mask)

    module = Attention()
    want = module(*inputs).numpy()
    np.testing.assert_allclose(
        want, _stock_attention(inputs[0] * 2.0, *inputs[1:]), rtol=1e-4, atol=1e-5
    )
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    np.testing.assert_array_equal(loaded(*inputs), want)
    with tf.GradientTape() as tape:
        y = loaded(*inputs)
    with tf.GradientTape() as stock_tape:
        stock_y = _stock_attention(inputs[0] * module.temperature, *inputs[1:])
    np.testing.assert_allclose(
        tape.gradient(y, loaded.temperature),
        stock_tape.gradient(stock_y, module.temperature),
        rtol=1e-3,
        atol=1e-5,
    )


def test_saved_model_in_another_process(tmp_path: Path) -> None:
    """One that loads the library the way a server would."""
    a, b = Case((2, 3, 4), (2, 4, 5)).operands()
    module = tf.Module()
    module.f = tf.function(
        lambda a, b: batch_matmul_add(a, b, 1.0, scale=1 / 3),
        input_signature=[tf.TensorSpec(None), tf.TensorSpec(None)],
    )
    tf.saved_model.save(module, str(tmp_path))
    printed = output_with_tensorflow(
        f"""
        import numpy as np
        import tensorflow as tf
        import tf_tvm_ops
        tf.load_op_library(tf_tvm_ops.library_path())
        f = tf.saved_model.load({str(tmp_path)!r}).f
        a, b = np.array({a.tolist()!r}, "f"), np.array({b.tolist()!r}, "f")
        print(np.abs(f(a, b) - (a @ b / 3 + 1)).max() < 1e-5)
        """
    )
    assert printed == "True"


def _keras_model(attention: Callable[..., tf.Tensor]) -> Any:
    """Self-attention as a functional model, its weights the same each time."""
    keras.utils.set_random_seed(0)
    x = keras.Input([None, 12])
    heads = [keras.layers.Reshape([-1, 3, 4])(keras.layers.Dense(12)(x)) for _ in range(3)]
    y = keras.layers.Lambda(lambda qkv: attention(*qkv, 0.0))(heads)
    return keras.Model(x, keras.layers.Dense(2)(keras.layers.Reshape([-1, 12])(y)))


def test_keras_functional_model() -> None:
    x = np.random.default_rng(0).standard_normal((16, 5, 12), np.float32)
    y = x[..., :2] * 0.5
    histories = []
    for attention in (_attention, _stock_attention):
        model = _keras_model(attention)
        assert model.output_shape == (None, None, 2)
        first = model(x).numpy()
        model.compile("sgd", "mse")
        history = model.fit(x, y, epochs=3, batch_size=8, shuffle=False, verbose=0)
        histories.append((first, model.predict(x, verbose=0), history.history["loss"]))
    for ours, stock in zip(*histories):
        np.testing.assert_allclose(ours, stock, rtol=1e-3, atol=1e-5)
    assert histories[0][2][0] > histories[0][2][-1]


def test_mirrored_strategy() -> None:
    """Two replicas: each computes its share, and the gradients are summed."""
    printed = output_with_tensorflow(
        """
        import numpy as np
        import tensorflow as tf
        (cpu,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * 2
        )
        from tf_tvm_ops import batch_matmul, batch_matmul_add, batch_matmul_transpose
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        rng = np.random.default_rng(0)
        x = rng.standard_normal((8, 3, 4), np.float32)
        w = rng.standard_normal((4, 5), np.float32)
        with strategy.scope():
            weights, bias = tf.Variable(w), tf.Variable(np.ones(5, "f"))
        data = tf.data.Dataset.from_tensor_slices(x).batch(4)
        data = strategy.experimental_distribute_dataset(data)
        devices = set()

        def replica(a):
            devices.add(weights.handle.device)
            with tf.GradientTape() as tape:
                y = batch_matmul_add(a, weights, bias, scale=0.5)
                y = batch_matmul_transpose(y, batch_matmul(y, y, adj_y=True), adj_x=True)
                loss = tf.reduce_sum(y)
            gradients = tape.gradient(loss, [weights, bias])
            return tf.distribute.get_replica_context().all_reduce("sum", gradients)

        @tf.function
        def step(a):
            return strategy.run(replica, args=(a,))

        total = [np.zeros((4, 5)), np.zeros(5)]
        for batch in data:
            found = step(batch)
            for i in range(2):
                first, second = strategy.experimental_local_results(found[i])
                assert np.array_equal(first, second)
                total[i] += first.numpy()
        with tf.GradientTape() as tape:
            y = tf.matmul(x, weights) * 0.5 + bias
            loss = tf.reduce_sum(tf.matmul(y, tf.matmul(y, y, transpose_b=True), transpose_a=True))
        for got, want in zip(total, tape.gradient(loss, [weights, bias])):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)
        print(strategy.num_replicas_in_sync, len(devices))
        """
    )
    assert printed.splitlines()[-1] == "2 2"


def test_dataset() -> None:
    """Inside a tf.data pipeline, whose threads are others."""
    lhs, rhs = Case((6, 2, 3, 4), (6, 2, 4, 5)).operands()
    data = tf.data.Dataset.from_tensor_slices((lhs, rhs)).map(batch_matmul, num_parallel_calls=2)
    case = Case((2, 3, 4), (2, 4, 5))
    for i, got in enumerate(data):
        check(case, got, lhs[i], rhs[i])
    assert i == 5


def test_lazily_imported() -> None:
    assert (
        output_of(
            """
        import sys
        import tf_tvm_ops
        assert "tensorflow" not in sys.modules
        assert {"batch_matmul_add", "batch_matmul_transpose"} <= set(dir(tf_tvm_ops))
        print(tf_tvm_ops.batch_matmul_add.__name__, tf_tvm_ops.batch_matmul_transpose.__name__)
        """
        )
        == "batch_matmul_add batch_matmul_transpose"
    )
    assert tf_tvm_ops.batch_matmul is batch_matmul
