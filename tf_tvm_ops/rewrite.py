"""Rewriting of graphs: stock products become ops of this package, and nothing else changes.

It is on from the moment the library is loaded, for everything that is set up afterwards: sessions,
``tf.function``, Keras models, loaded SavedModels. ``TF_TVM_OPS_REWRITE`` sets it at the start.

Examples
--------
>>> import tf_tvm_ops
>>> tf_tvm_ops.load()  # doctest: +SKIP
>>> model.predict(inputs)  # doctest: +SKIP
>>> print(tf_tvm_ops.rewrite.report())  # doctest: +SKIP
"""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tf_tvm_ops.library import library_path, load

__all__ = [
    "Cost",
    "Outcome",
    "Report",
    "clear_report",
    "cost",
    "disable",
    "disabled",
    "enable",
    "enabled",
    "reasons",
    "report",
    "rewrite_graph_def",
    "rewrite_saved_model",
]


@dataclass(frozen=True)
class Outcome:
    """What became of one product of a graph.

    Attributes
    ----------
    graph
        Name of the function, or what else the graph is.
    product, product_op
        Name and type of the node that computed it.
    shapes
        Of its operands, as far as they were known.
    op, node
        Type and name of the node that it became; empty if it was left alone.
    parts
        What was fused with it: ``scale``, ``addend``, ``transpose``, ``lhs transpose``, …
    reason
        Why it was left alone, or why no more was fused: a word of `reasons`, or empty.
    detail
        The node or value that the reason is about; or the op that comes next.
    """

    graph: str
    product: str
    product_op: str
    shapes: str
    op: str
    node: str
    parts: tuple[str, ...]
    reason: str
    detail: str

    @property
    def rewritten(self) -> bool:
        """Whether it became an op of this package."""
        return bool(self.op)

    def __str__(self) -> str:
        why = f"{self.reason} ({self.detail})" if self.reason and self.detail else self.reason
        text = f"{self.product}, {self.product_op} {self.shapes}: ".replace(" :", ":")
        if not self.rewritten:
            return f"{text}left alone: {why}"
        fused = f" with {', '.join(self.parts)}" if self.parts else ""
        return f"{text}{self.op}{fused}" + (f"; no more: {why}" if why else "")


@dataclass(frozen=True)
class Report:
    """The outcomes of a number of graphs; printing it gives a line for each.

    Attributes
    ----------
    outcomes
        One for each product, by graph.
    """

    outcomes: tuple[Outcome, ...]

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self.outcomes)

    def __len__(self) -> int:
        return len(self.outcomes)

    @property
    def rewritten(self) -> tuple[Outcome, ...]:
        """Those that became ops of this package."""
        return tuple(outcome for outcome in self.outcomes if outcome.rewritten)

    def left_alone(self) -> Counter[str]:
        """How many products were left alone, by reason."""
        return Counter(outcome.reason for outcome in self.outcomes if not outcome.rewritten)

    def __str__(self) -> str:
        lines = [f"{len(self)} products, {len(self.rewritten)} rewritten"]
        graph = None
        for outcome in self.outcomes:
            if outcome.graph != graph:
                graph = outcome.graph
                lines.append(graph)
            lines.append(f"  {outcome}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Cost:
    """What it took to look at graphs and to rewrite them.

    Attributes
    ----------
    graphs, nodes
        How many were looked at; each graph twice.
    seconds
        How long that took.
    """

    graphs: int
    nodes: int
    seconds: float


def enable(report: bool = False) -> None:
    """Rewrite graphs that are set up from now on.

    Parameters
    ----------
    report
        Whether to write to standard error, for each graph, what became of its products.
    """
    _library().TfTvmOpsSetRewriteMode(b"report" if report else b"on")


def disable() -> None:
    """Leave graphs that are set up from now on as they are. Those set up already stay rewritten."""
    _library().TfTvmOpsSetRewriteMode(b"off")


def enabled() -> bool:
    """Whether graphs are rewritten."""
    return bool(_library().TfTvmOpsRewriteMode() != b"off")


@contextmanager
def disabled() -> Iterator[None]:
    """Leave graphs that are set up inside a ``with`` block, by any thread, as they are."""
    library = _library()
    before: bytes = library.TfTvmOpsRewriteMode()
    library.TfTvmOpsSetRewriteMode(b"off")
    try:
        yield
    finally:
        library.TfTvmOpsSetRewriteMode(before)


def report() -> Report:
    """What became of each product of each graph in this process; the last 1,000 graphs are kept."""
    return _parse(_take_text(_library().TfTvmOpsRewriteReport()))


def clear_report() -> None:
    """Forget the graphs seen so far."""
    _library().TfTvmOpsClearRewriteReport()


def cost() -> Cost:
    """What the automatic rewriting took of this process so far."""
    graphs, nodes, seconds = ctypes.c_longlong(), ctypes.c_longlong(), ctypes.c_double()
    _library().TfTvmOpsRewriteCost(ctypes.byref(graphs), ctypes.byref(nodes), ctypes.byref(seconds))
    return Cost(graphs.value, nodes.value, seconds.value)


def reasons() -> dict[str, str]:
    """The words that say why something was not fused, each with a sentence."""
    lines = _take_text(_library().TfTvmOpsRewriteReasons()).splitlines()
    return dict(line.split("\t", 1) for line in lines)


def rewrite_graph_def(
    graph_def: Any, outputs: Iterable[str] = (), *, revert: bool = False
) -> tuple[Any, Report]:
    """Rewrite a graph, with the functions of its library.

    Parameters
    ----------
    graph_def
        A ``tf.compat.v1.GraphDef``. It is not changed.
    outputs
        Names of the nodes that will be fetched. Without any, each may be, and those that are fused
        stay in the graph, unused.
    revert
        Whether to put TensorFlow's ops in the place of this package's instead.

    Returns
    -------
    tf.compat.v1.GraphDef, Report

    Raises
    ------
    TypeError
        If ``graph_def`` is something else.
    ValueError
        If TensorFlow cannot read the graph, for instance because it has ops that are not loaded.
    """
    import tensorflow as tf

    if not isinstance(graph_def, tf.compat.v1.GraphDef):
        raise TypeError(f"graph_def: expected a GraphDef, got {type(graph_def).__name__}")
    names = [outputs] if isinstance(outputs, str) else list(outputs)
    serialized = graph_def.SerializeToString()
    library = _library()
    new_graph, size, text = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_void_p()
    error = library.TfTvmOpsRewriteGraphDef(
        serialized,
        len(serialized),
        "\n".join(names).encode(),
        int(revert),
        ctypes.byref(new_graph),
        ctypes.byref(size),
        ctypes.byref(text),
    )
    if error:
        raise ValueError(f"The graph was not rewritten: {_take_text(error)}")
    try:
        result = tf.compat.v1.GraphDef.FromString(ctypes.string_at(new_graph, size.value))
    finally:
        library.TfTvmOpsFree(new_graph)
    return result, _parse(_take_text(text.value))


def rewrite_saved_model(
    src: str | os.PathLike[str], dst: str | os.PathLike[str], *, revert: bool = False
) -> Report:
    """Write a SavedModel whose products are ops of this package.

    Signatures, variables and assets stay as they are. Where the new model is loaded, the op library
    has to be loaded before.

    Parameters
    ----------
    src
        Folder of a SavedModel.
    dst
        Folder to be made. It appears whole or not at all.
    revert
        Whether to put TensorFlow's ops in the place of this package's instead.

    Returns
    -------
    Report

    Raises
    ------
    FileNotFoundError
        If ``src`` is not a SavedModel.
    FileExistsError
        If there is something at ``dst``.
    ValueError
        As `rewrite_graph_def`.
    """
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    source, target = Path(src), Path(dst)
    if not (source / "saved_model.pb").is_file():
        raise FileNotFoundError(
            f"{source} is not a SavedModel: it has no saved_model.pb (models split into several "
            "files are not supported)"
        )
    if target.exists():
        raise FileExistsError(f"{target} exists: give the name of a folder to be made")
    stored = source / "saved_model.pb"
    try:
        saved_model = saved_model_pb2.SavedModel.FromString(stored.read_bytes())
    except DecodeError as error:
        raise ValueError(f"{stored} cannot be read: {error}") from error
    outcomes: list[Outcome] = []
    for meta_graph in saved_model.meta_graphs:
        new_graph, report_ = rewrite_graph_def(meta_graph.graph_def, revert=revert)
        meta_graph.graph_def.CopyFrom(new_graph)
        _list_ops(meta_graph)
        outcomes += report_.outcomes
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
        staged = Path(folder) / target.name
        # The fingerprint is of the graph that is replaced.
        shutil.copytree(source, staged, ignore=shutil.ignore_patterns("fingerprint.pb"))
        with open(staged / stored.name, "wb") as stream:
            stream.write(saved_model.SerializeToString(deterministic=True))
            stream.flush()
            os.fsync(stream.fileno())
        staged.rename(target)
    return Report(tuple(outcomes))


def _list_ops(meta_graph: Any) -> None:
    """Bring the model's list of the ops it needs up to date; loading looks defaults up in it."""
    from tensorflow.python.framework import op_def_registry

    nodes = [*meta_graph.graph_def.node]
    for function in meta_graph.graph_def.library.function:
        nodes += function.node_def
    listed = meta_graph.meta_info_def.stripped_op_list
    known = {op.name for op in listed.op}
    for name in sorted({node.op for node in nodes} - known):
        definition = op_def_registry.get(name)
        if definition is not None:
            listed.op.add().CopyFrom(definition)


def _parse(text: str) -> Report:
    outcomes = []
    for line in text.splitlines():
        graph, product, product_op, shapes, op, node, parts, reason, detail = line.split("\t")
        fused = tuple(filter(None, parts.split(", ")))
        outcomes.append(
            Outcome(graph, product, product_op, shapes, op, node, fused, reason, detail)
        )
    return Report(tuple(outcomes))


def _take_text(pointer: int | None) -> str:
    """The text at an address, which is freed."""
    if not pointer:
        raise MemoryError
    try:
        return ctypes.string_at(pointer).decode()
    finally:
        _library().TfTvmOpsFree(pointer)


@cache
def _library() -> ctypes.CDLL:
    """The op library, loaded into TensorFlow before."""
    load()
    library = ctypes.CDLL(library_path())
    library.TfTvmOpsFree.argtypes = [ctypes.c_void_p]
    library.TfTvmOpsFree.restype = None
    library.TfTvmOpsSetRewriteMode.argtypes = [ctypes.c_char_p]
    library.TfTvmOpsSetRewriteMode.restype = None
    library.TfTvmOpsRewriteMode.restype = ctypes.c_char_p
    library.TfTvmOpsRewriteReport.restype = ctypes.c_void_p
    library.TfTvmOpsClearRewriteReport.restype = None
    library.TfTvmOpsRewriteReasons.restype = ctypes.c_void_p
    library.TfTvmOpsRewriteCost.argtypes = [ctypes.c_void_p] * 3
    library.TfTvmOpsRewriteCost.restype = None
    library.TfTvmOpsRewriteGraphDef.argtypes = [
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_char_p,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    library.TfTvmOpsRewriteGraphDef.restype = ctypes.c_void_p
    return library
