"""Shape tables: YAML files that list the products of a model.

A row names the model site it comes from and the extents of the product; lists and ranges stand for
all their combinations. ``shapes.schema.json`` is the format.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from .problem import Problem

MAX_PROBLEMS = 100_000
"""More in one table is taken for a slip: generating them would take hours."""


class ShapeTableError(ValueError):
    """A shape table that cannot be used; the message names file, line and mend."""


@dataclass(frozen=True)
class ShapeRow:
    """One product of a model.

    Attributes
    ----------
    site
        Where in which model it is computed.
    batch
        Typical batch dimensions, for benchmarks.
    m, n, k, lhs, rhs, dtype
        As in :class:`~tf_tvm_ops.kernels.problem.Problem`.
    """

    site: str
    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    lhs: str = "k"
    rhs: str = "n"
    dtype: str = "float32"

    @property
    def problem(self) -> Problem:
        """What a kernel for the row computes."""
        return Problem(self.m, self.n, self.k, self.lhs, self.rhs, self.dtype).canonical()


def load_tables(paths: Iterable[Path | str]) -> list[ShapeRow]:
    """The rows of several tables, in order, ranges expanded.

    Raises
    ------
    ShapeTableError
        If a file cannot be read or does not follow the format.
    """
    return [row for path in paths for row in load_table(Path(path))]


def problems(rows: Iterable[ShapeRow]) -> list[Problem]:
    """The distinct problems of ``rows``, in a fixed order."""
    return sorted({row.problem for row in rows}, key=lambda p: (p.extents(), p.lhs, p.rhs, p.dtype))


def load_table(path: Path) -> list[ShapeRow]:
    """The rows of one table: see :func:`load_tables`."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ShapeTableError(f"{path}: {reason}; expected a YAML shape table") from error
    try:
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        problem = getattr(error, "problem", None) or "not YAML"
        raise ShapeTableError(f"{path}:{line}: {problem}; mend the YAML syntax") from error
    _check_duplicate_keys(path, tree)
    fault = jsonschema.exceptions.best_match(_validator().iter_errors(document))
    if fault is not None:
        line = _line(tree, list(fault.absolute_path), fault)
        raise ShapeTableError(f"{path}:{line}: {_explain(fault)}")
    rows: list[ShapeRow] = []
    for index, row in enumerate(document["rows"]):
        line = _line(tree, ["rows", index], None)
        rows += _expand(path, line, row, MAX_PROBLEMS - len(rows))
    return rows


@cache
def _validator() -> Any:
    schema = json.loads((Path(__file__).parent / "shapes.schema.json").read_text("utf-8"))
    return jsonschema.Draft202012Validator(schema)


def _expand(path: Path, line: int, row: dict[str, Any], most: int) -> list[ShapeRow]:
    def values(name: str) -> Sequence[int | None]:
        extent = row[name]
        if extent == "m":
            if name == "m":
                raise ShapeTableError(f"{path}:{line}: m is given as itself; expected a size")
            return (None,)
        if isinstance(extent, dict):
            if extent["from"] > extent["to"]:
                raise ShapeTableError(
                    f"{path}:{line}: {name} runs from {extent['from']} to {extent['to']}; "
                    "expected the smaller size first"
                )
            return range(extent["from"], extent["to"] + 1)
        return extent if isinstance(extent, list) else (extent,)

    axes = [values(name) for name in "mnk"]
    dtypes = row.get("dtype", "float32")
    dtypes = dtypes if isinstance(dtypes, list) else [dtypes]
    count = len(axes[0]) * len(axes[1]) * len(axes[2]) * len(dtypes)
    if count > most:
        raise ShapeTableError(
            f"{path}:{line}: the table has more than {MAX_PROBLEMS} products up to here; "
            "narrow the ranges"
        )
    return [
        ShapeRow(
            site=row["site"],
            batch=tuple(row.get("batch", ())),
            m=m,
            n=m if n is None else n,
            k=m if k is None else k,
            lhs=row.get("lhs", "k"),
            rhs=row.get("rhs", "n"),
            dtype=dtype,
        )
        for m, n, k, dtype in itertools.product(*axes, dtypes)
        if m is not None
    ]


def _check_duplicate_keys(path: Path, node: Any) -> None:
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check_duplicate_keys(path, item)
    elif isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                line = key.start_mark.line + 1
                raise ShapeTableError(f"{path}:{line}: {key.value!r} is given twice; drop one")
            seen.add(key.value)
            _check_duplicate_keys(path, value)


def _line(tree: Any, keys: list[Any], error: Any) -> int:
    """Line of the node at ``keys``, or of the unknown key that ``error`` is about."""
    node, line = tree, 1
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            pairs = {k.value: (k, v) for k, v in node.value}
            name, node = pairs[str(key)]
            line = name.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode):
            node = node.value[key]
            line = node.start_mark.line + 1
    if error is not None and error.validator == "additionalProperties":
        allowed = error.schema["properties"]
        for name, _ in node.value:
            if name.value not in allowed:
                return int(name.start_mark.line) + 1
    return int(line)


def _explain(error: Any) -> str:
    """What was found and what is expected, in one sentence."""
    where = ".".join(str(p) for p in error.absolute_path if not isinstance(p, int)) or "the table"
    where = where.removeprefix("rows.")
    if error.validator == "additionalProperties":
        allowed = ", ".join(error.schema["properties"])
        unknown = ", ".join(repr(k) for k in error.instance if k not in error.schema["properties"])
        return f"unknown key {unknown}; expected one of {allowed}"
    if error.validator == "required":
        missing = [k for k in error.schema["required"] if k not in error.instance]
        return f"{', '.join(missing)} missing; every row has {', '.join(error.schema['required'])}"
    found = json.dumps(error.instance)
    found = found if len(found) <= 40 else found[:37] + "..."
    if error.validator == "enum":
        expected = "one of " + ", ".join(str(v) for v in error.schema["enum"])
    elif error.validator == "anyOf":
        expected = error.schema["description"].rstrip(".")
        expected = expected[0].lower() + expected[1:]
    elif error.validator in ("minimum", "maximum"):
        low, high = error.schema.get("minimum"), error.schema.get("maximum")
        expected = f"a whole number from {low} to {high}" if high else f"at least {low}"
    elif error.validator == "type":
        kinds = {"object": "keys and values", "array": "a list", "integer": "a whole number"}
        expected = kinds.get(error.schema["type"], f"a {error.schema['type']}")
    else:
        expected = error.message
    return f"{where} is {found}; expected {expected}"
