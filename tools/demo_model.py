"""The demo's second part: a Keras model whose graph is rewritten, with nothing changed in it."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

LAYERS, HEADS, DEPTH = 4, 4, 64
WIDTH = HEADS * DEPTH
INPUTS = {"64 sentences of 17 words": (64, 17), "1 sentence of 17 words": (1, 17)}
TOLERANCE = 1e-4
"""Largest difference from float64 in the output of four layers, whose elements are below 10."""
SECONDS, REPEATS = 0.03, 15


def encoder(dtype: str) -> Any:
    """A Transformer encoder of the size of BERT-mini, made of Keras's layers."""
    import keras

    layers = keras.layers
    words = keras.Input((None, WIDTH), dtype=dtype)
    states = words
    for _ in range(LAYERS):
        attended = layers.MultiHeadAttention(HEADS, DEPTH, dtype=dtype)(states, states)
        states = layers.Add(dtype=dtype)([states, attended])
        states = layers.LayerNormalization(dtype=dtype)(states)
        hidden = layers.Dense(4 * WIDTH, activation="gelu", dtype=dtype)(states)
        hidden = layers.Dense(WIDTH, dtype=dtype)(hidden)
        states = layers.LayerNormalization(dtype=dtype)(layers.Add(dtype=dtype)([states, hidden]))
    return keras.Model(words, states)


def show(console: Console) -> int:
    """Run the encoder as TensorFlow ships and rewritten, and print times and report.

    Returns
    -------
    int
        1 if an answer was wrong, else 0.
    """
    import keras

    console.rule("[bold]3. Or change nothing: graphs are rewritten when they are set up")
    keras.utils.set_random_seed(0)
    model, exact = encoder("float32"), encoder("float64")
    exact.set_weights(model.get_weights())
    functions, report = both_ways(model)
    table = Table(
        title=f"A Keras encoder, {LAYERS} layers, {HEADS} heads of {DEPTH}: time in milliseconds"
    )
    table.add_column("input")
    for name in ("stock", "rewritten", "faster"):
        table.add_column(name, justify="right")
    worst = 0.0
    with console.status("measuring"):
        for title, (batch, length) in INPUTS.items():
            words = np.random.default_rng(0).standard_normal((batch, length, WIDTH))
            want = exact(words).numpy()
            for function in functions.values():
                worst = max(worst, float(np.abs(function(words).numpy() - want).max()))
            times = _milliseconds(functions, words)
            stock, rewritten = times["stock"], times["rewritten"]
            row = (f"{stock:.2f}", f"{rewritten:.2f}", f"{stock / rewritten:.2f}×")
            table.add_row(title, *row)
    console.print(table)
    console.print("[dim]>>>[/] tf_tvm_ops.rewrite.report()")
    for line in summary(report):
        console.print(f"  {line}", highlight=False)
    if worst > TOLERANCE:
        console.print(f"[red]WRONG:[/] off from float64 by {worst:.2g}; allowed {TOLERANCE}")
        return 1
    console.print(
        f"[green]Same answer:[/] both agree with the encoder in float64 to {worst:.1g}. Most of "
        "the time goes into dense layers, which are left alone."
    )
    return 0


def both_ways(model: Any) -> tuple[dict[str, Callable[..., Any]], Any]:
    """The model as graphs for every shape, stock and rewritten, and the report of both."""
    import tensorflow as tf

    from tf_tvm_ops import rewrite

    signature = [tf.TensorSpec([None, None, WIDTH], tf.float32)]
    word = tf.zeros([1, 1, WIDTH])
    functions: dict[str, Callable[..., Any]] = {
        name: tf.function(lambda words: model(words), input_signature=signature)
        for name in ("stock", "rewritten")
    }
    rewrite.clear_report()
    # A graph is set up by the first call, and stays as it is.
    with rewrite.disabled():
        functions["stock"](word)
    functions["rewritten"](word)
    return functions, rewrite.report()


def summary(report: Any) -> list[str]:
    """What the rewriter did, a line for each kind of product."""
    lines: Counter[str] = Counter()
    for outcome in report:
        if outcome.rewritten:
            lines[f"{outcome.op} with {', '.join(outcome.parts)}"] += 1
        else:
            lines[f"left alone: {outcome.reason}"] += 1
    return [f"{len(report)} products, {len(report.rewritten)} rewritten"] + [
        f"{count} × {line}" for line, count in sorted(lines.items())
    ]


def _milliseconds(functions: Mapping[str, Callable[..., Any]], words: Any) -> dict[str, float]:
    """Median time of a call of each, measured in turns."""
    import tensorflow as tf

    words = tf.constant(words, tf.float32)
    counts = {
        name: max(1, int(SECONDS / _seconds(function, words, 2)))
        for name, function in functions.items()
    }
    samples: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(REPEATS):
        for name, function in functions.items():
            samples[name].append(1e3 * _seconds(function, words, counts[name]))
    return {name: statistics.median(times) for name, times in samples.items()}


def _seconds(function: Callable[..., Any], words: Any, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        function(words)
    return (time.perf_counter() - start) / calls
