"""How ``tf.vectorized_map`` turns the ops into ones with a batch dimension more.

Importing this module registers that with TensorFlow.
"""

from __future__ import annotations

from typing import Any

from tf_tvm_ops.library import load

_OPS = {
    "TvmBatchMatMul": ("tvm_batch_mat_mul", ("lhs", "rhs")),
    "TvmBatchMatMulAdd": ("tvm_batch_mat_mul_add", ("lhs", "rhs", "addend")),
    "TvmBatchMatMulTranspose": ("tvm_batch_mat_mul_transpose", ("lhs", "rhs")),
}
_ATTRIBUTES = ("adj_x", "adj_y", "lhs_length_first", "rhs_length_first", "scale")


def _register() -> None:
    # TensorFlow has no public way to tell it. Where this one is gone, vectorized_map runs the ops
    # in a loop and says so itself.
    try:
        from tensorflow.python.ops.parallel_for.pfor import RegisterPFor, wrap
    except ImportError:
        return

    def convert(pfor_input: Any) -> Any:
        """All iterations are batches of one product, if ranks are made equal first."""
        pfor_input.expanddim_inputs_for_broadcast()
        function, names = _OPS[pfor_input.op_type]
        inputs = {name: pfor_input.input(i)[0] for i, name in enumerate(names)}
        attributes = {name: pfor_input.get_attr(name) for name in _ATTRIBUTES}
        return wrap(getattr(load(), function)(**inputs, **attributes), True)

    for op_type in _OPS:
        RegisterPFor(op_type)(convert)


_register()
