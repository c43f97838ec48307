"""``make demo``: attention layers with stock TensorFlow and with kernels made on the spot.

It makes a pack with ``tf-tvm-ops generate``, loads it, computes attention layers of the sizes of
translation models both ways, checks both against float64 NumPy, and shows the times. Then it runs
a Keras model that is rewritten when its graph is set up (demo_model.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from tf_tvm_ops.tools import demo_model
from tf_tvm_ops.tools.bench import machine, report
from tf_tvm_ops.tools.bench.cases import Array
from tf_tvm_ops.tools.console import standard_output

TABLE = Path(__file__).with_name("demo.yaml")
HEADS, DEPTH = 8, 64
TOLERANCE = 1e-5
SECONDS, REPEATS = 0.4, 15


@dataclass(frozen=True)
class Layer:
    """An attention layer: ``queries`` positions attend to ``keys`` positions.

    Attributes
    ----------
    name
        What it stands for.
    batch, queries, keys
        Extents of [batch, heads, queries, depth] and [batch, heads, keys, depth].
    """

    name: str
    batch: int
    queries: int
    keys: int

    def inputs(self) -> tuple[Array, Array, Array]:
        """Random queries, keys and values."""
        rng = np.random.default_rng(0)
        query, key, value = (
            rng.standard_normal((self.batch, HEADS, length, DEPTH), np.float32)
            for length in (self.queries, self.keys, self.keys)
        )
        return query, key, value


# What demo.yaml lists.
LAYERS = (
    Layer("64 sentences of 17 words", 64, 17, 17),
    Layer("16 sentences of 30 words", 16, 30, 30),
    Layer("decoding one word after 17", 64, 1, 17),
    Layer("1 sentence of 17 words", 1, 17, 17),
)


def main() -> int:
    """Run the demo. Returns the exit code: 1 if an answer was wrong."""
    console = standard_output()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    here = machine.describe()
    with tempfile.TemporaryDirectory(prefix="tf_tvm_ops_demo_") as folder:
        pack = Path(folder, "pack")
        if not _generate(console, pack):
            return 1
        return compare(console, here, pack) or demo_model.show(console)


def _generate(console: Console, pack: Path) -> bool:
    console.rule("[bold]1. Compile the kernels, ahead of time")
    shown = "tf-tvm-ops generate --shapes demo.yaml --out pack"
    console.print(f"[dim]$[/] {shown}", highlight=False)
    command = [sys.executable, "-m", "tf_tvm_ops", "generate", "--shapes", str(TABLE)]
    done = subprocess.run(
        [*command, "--out", str(pack), "--cache", str(pack.parent / "cache")], check=False
    )
    if done.returncode != 0:
        return False
    console.print("Nothing is compiled from here on.\n")
    return True


def _import_tensorflow() -> None:
    """Import it without its notices on the way, which nothing else turns off."""
    with tempfile.TemporaryFile() as notices:
        kept = os.dup(2)
        os.dup2(notices.fileno(), 2)
        try:
            import tensorflow as tf

            tf.constant(0)
        except BaseException:
            notices.seek(0)
            os.write(kept, notices.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def compare(console: Console, here: machine.Machine, pack: Path) -> int:
    """Measure the layers with the kernels of ``pack`` and print the table.

    Returns
    -------
    int
        1 if an answer was wrong, else 0.
    """
    import tf_tvm_ops

    _import_tensorflow()
    console.rule("[bold]2. Use them in TensorFlow")
    console.print("[dim]>>>[/] tf_tvm_ops.packs.load('pack')", highlight=False)
    console.print("[dim]>>>[/] scores = tf_tvm_ops.batch_matmul(query, key, adj_y=True)")
    console.print("[dim]>>>[/] output = tf_tvm_ops.batch_matmul(tf.nn.softmax(scores), value)\n")
    tf_tvm_ops.packs.load(pack)

    table = Table(title="One attention layer, 8 heads of 64: time of each part, in microseconds")
    for name in ("layer", "part", "shape", "served by"):
        table.add_column(name, overflow="fold")
    for name in ("stock", "ours", "faster"):
        table.add_column(name, justify="right")
    errors: list[float] = []
    with console.status("measuring"):
        for layer in LAYERS:
            errors.append(_measure(layer, len(os.sched_getaffinity(0)), table))
    console.print(table)

    onednn = os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1") != "0"
    console.print(
        f"[bold]stock[/] is tf.matmul as TensorFlow ships it (oneDNN {'on' if onednn else 'off'}); "
        "[bold]ours[/] is tf_tvm_ops.batch_matmul. Each is the median of "
        f"{REPEATS} runs inside a graph, taken in turns, with the inputs in cache. Softmax is "
        "TensorFlow's own in both."
    )
    console.print(f"Measured on {here}.", style="dim", soft_wrap=True, highlight=False)
    worst = max(errors)
    if worst > TOLERANCE:
        console.print(f"[red]WRONG:[/] off from float64 NumPy by {worst:.2g}; allowed {TOLERANCE}")
        return 1
    console.print(
        f"[green]Same answer:[/] both agree with float64 NumPy to {worst:.1g} in every layer."
    )
    return 0


def _measure(layer: Layer, threads: int, table: Table) -> float:
    """Add the layer to the table. Returns the largest error of both implementations."""
    import tensorflow as tf

    from tf_tvm_ops.ops import batch_matmul, served_by
    from tf_tvm_ops.tools.bench.timing import GraphTimer

    query, key, value = layer.inputs()
    scale = DEPTH**-0.5
    matmuls: dict[str, Callable[..., Any]] = {
        "stock": lambda a, b, adj_y: tf.linalg.matmul(a, b, transpose_b=adj_y),
        "ours": lambda a, b, adj_y: batch_matmul(a, b, adj_y=adj_y),
    }

    def attention(matmul: Callable[..., Any]) -> Callable[..., Any]:
        def build(q: Any, k: Any, v: Any) -> Any:
            return matmul(tf.nn.softmax(matmul(q, k, True) * scale), v, False)

        return build

    def product(matmul: Callable[..., Any], adj_y: bool) -> Callable[..., Any]:
        return lambda a, b: matmul(a, b, adj_y)

    weights = _softmax(query.astype(np.float64) @ key.swapaxes(-1, -2) * scale)
    parts: tuple[tuple[str, tuple[Array, ...], dict[str, Callable[..., Any]], str], ...] = (
        (
            "scores",
            (query, key),
            {name: product(matmul, True) for name, matmul in matmuls.items()},
            served_by(query, key, adj_y=True).numpy().decode(),
        ),
        (
            "values",
            (weights.astype(np.float32), value),
            {name: product(matmul, False) for name, matmul in matmuls.items()},
            served_by(weights.astype(np.float32), value).numpy().decode(),
        ),
        (
            "whole layer",
            (query, key, value),
            {name: attention(matmul) for name, matmul in matmuls.items()},
            "",
        ),
    )
    wants = (query.astype(np.float64) @ key.swapaxes(-1, -2), weights @ value, weights @ value)
    worst = 0.0
    for (part, inputs, builders, server), want in zip(parts, wants):
        with GraphTimer(inputs, builders, threads) as timer:
            for got in timer.outputs().values():
                worst = max(worst, float(np.abs(got - want).max() / np.abs(want).max()))
            timings = timer.measure(SECONDS, REPEATS)
        stock, ours = timings["stock"].median_us, timings["ours"].median_us
        shape = "×".join(map(str, inputs[0].shape))
        if len(inputs) == 2:
            shape += " · " + "×".join(map(str, inputs[1].shape)) + ("ᵀ" if part == "scores" else "")
        style = "bold" if part == "whole layer" else ""
        table.add_row(
            layer.name if part == "scores" else "",
            part,
            shape,
            report.brief(server),
            f"{stock:.1f}",
            f"{ours:.1f}",
            f"{stock / ours:.2f}×",
            style=style,
        )
    table.add_section()
    return worst


def _softmax(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    powers = np.exp(x - x.max(-1, keepdims=True))
    result: npt.NDArray[np.float64] = np.divide(powers, powers.sum(-1, keepdims=True))
    return result


if __name__ == "__main__":
    sys.exit(main())
