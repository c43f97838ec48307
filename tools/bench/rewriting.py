"""What the rewriter adds to setting up a graph: ``python -m tf_tvm_ops.tools.bench.rewriting``.

Graphs of a number of nodes, with and without products, are set up in a session with TensorFlow's
own optimisations off; the rewriter counts its own time.
"""

from __future__ import annotations

import os
import statistics
from typing import Any

import numpy as np
from rich.table import Table

from tf_tvm_ops.tools.console import standard_output

NODES = (1_000, 10_000, 100_000)
REPEATS = 5
_SHAPE = (1, 2, 4, 4)


def build(nodes: int, products: int) -> tuple[Any, Any]:
    """A graph that is one chain of so many nodes, the products evenly among them; its end."""
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, _SHAPE, "x")
        for i in range(nodes):
            is_product = products and i % (nodes // products) == 0
            x = tf.matmul(x, x) if is_product else tf.tanh(x)
    return graph, x


def measure(nodes: int, products: int) -> float:
    """Median seconds that the rewriter takes for such a graph."""
    import tensorflow as tf

    from tf_tvm_ops import rewrite

    graph, end = build(nodes, products)
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    seconds = []
    for _ in range(REPEATS):
        before = rewrite.cost()
        with tf.compat.v1.Session(graph=graph, config=config) as session:
            session.run(end, {"x:0": np.ones(_SHAPE, np.float32)})
        after = rewrite.cost()
        if after.nodes - before.nodes < nodes:
            raise RuntimeError(f"the rewriter saw {after.nodes - before.nodes} of {nodes} nodes")
        seconds.append(after.seconds - before.seconds)
    return statistics.median(seconds)


def main() -> None:
    """Print a table."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tf_tvm_ops

    tf_tvm_ops.load()
    measure(100, 1)  # makes what is made once in a process
    table = Table(title="Time of the rewriter, in milliseconds")
    for column in ("nodes", "no product", "1 in 1,000 nodes", "1 in 100 nodes"):
        table.add_column(column, justify="right")
    for nodes in NODES:
        times = [measure(nodes, products) for products in (0, nodes // 1000, nodes // 100)]
        table.add_row(f"{nodes:,}", *(f"{1e3 * t:.3f}" for t in times))
    standard_output().print(table)


if __name__ == "__main__":
    main()
