"""An attention layer whose two products are served by kernels compiled ahead of time.

Run it with: python examples/attention.py
"""

import tensorflow as tf

import tf_tvm_ops


def attention(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
    """Attend from [batch, heads, M, depth] to [batch, heads, N, depth]."""
    scores = tf_tvm_ops.batch_matmul(query, key, adj_y=True)  # was tf.matmul(…, transpose_b=True)
    weights = tf.nn.softmax(scores * query.shape[-1] ** -0.5)
    return tf_tvm_ops.batch_matmul(weights, value)  # was tf.matmul(weights, value)


if __name__ == "__main__":
    query, key, value = (tf.random.normal([64, 8, 17, 64]) for _ in range(3))
    print(attention(query, key, value).shape)
