"""Shape tables: kernels/shapes.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tf_tvm_ops.kernels
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.shapes import ShapeTableError, load_table, load_tables, problems

TABLES = Path(tf_tvm_ops.kernels.__file__).parent / "tables"


def table(folder: Path, text: str) -> Path:
    path = folder / "t.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_ranges_lists_and_references_expand(tmp_path):
    path = table(
        tmp_path,
        "rows:\n- {site: s, batch: [4, 8], m: {from: 2, to: 3}, n: m, k: [5, 6], rhs: k}\n",
    )
    rows = load_table(path)
    assert [(r.m, r.n, r.k) for r in rows] == [(2, 2, 5), (2, 2, 6), (3, 3, 5), (3, 3, 6)]
    assert {(r.site, r.batch, r.rhs, r.lhs) for r in rows} == {("s", (4, 8), "k", "k")}


def test_several_dtypes(tmp_path):
    path = table(tmp_path, "rows:\n- {site: s, m: 1, n: 2, k: 3, dtype: [float16, bfloat16]}\n")
    assert [row.problem.dtype for row in load_table(path)] == ["float16", "bfloat16"]


def test_problems_are_distinct_and_canonical(tmp_path):
    path = table(
        tmp_path,
        "rows:\n- {site: a, m: 1, n: 2, k: 3}\n- {site: b, m: 1, n: 2, k: 3, lhs: m}\n",
    )
    assert problems(load_tables([path, path])) == [Problem(1, 2, 3)]


def test_shipped_tables_hold_the_sites_they_promise():
    found = set(problems(load_tables(sorted(TABLES.glob("*.yaml")))))
    assert Problem(1, 17, 128, rhs="k") in found
    for depth in (32, 64, 128):
        for length in range(1, 33):
            assert Problem(1, length, depth, rhs="k").canonical() in found
            assert Problem(1, depth, length).canonical() in found
            assert Problem(length, length, depth, rhs="k").canonical() in found
            assert Problem(length, depth, length).canonical() in found
    for length in (128, 384):
        assert Problem(length, length, 64, rhs="k") in found
        assert Problem(length, 64, length) in found


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (
            "rows:\n- {site: a, m: 1, n: 2, k: 3}\n- site: b\n  m: -1\n  n: 2\n  k: 3\n",
            4,
            "m is -1",
        ),
        ("rows:\n- {site: a, m: 1, n: 2, k: 3,\n   foo: 2}\n", 3, "unknown key 'foo'"),
        ("bar: 1\nrows:\n- {site: a, m: 1, n: 2, k: 3}\n", 1, "unknown key 'bar'"),
        ("rows:\n- {site: a, m: 1, n: 2}\n", 2, "k missing"),
        ("rows: 3\n", 1, "rows is 3; expected a list"),
        ("", 1, "expected keys and values"),
        ("rows:\n- {site: a, m: {from: 3, to: 1}, n: 2, k: 3}\n", 2, "m runs from 3 to 1"),
        ("rows:\n- {site: a, m: {from: 3, too: 1}, n: 2, k: 3}\n", 2, "from: A, to: B"),
        ("rows: [\n", 2, "mend the YAML syntax"),
        ("rows:\n- {site: a, m: m, n: 2, k: 3}\n", 2, "m is given as itself"),
        ("rows:\n- {site: a,\n   m: 1,\n   m: 3, n: 2, k: 3}\n", 4, "'m' is given twice"),
        ("rows:\n- {site: a, m: 1.5, n: 2, k: 3}\n", 2, "m is 1.5"),
        ("rows:\n- {site: a, m: 1, n: 2, k: 3, rhs: q}\n", 2, 'rhs is "q"; expected one of n, k'),
        ("rows:\n- {site: a, m: 1, n: 2, k: 3, batch: [0]}\n", 2, "batch is 0"),
        ("rows:\n- {site: a, m: 1, n: 2, k: 3, dtype: int8}\n", 2, "expected an element type"),
        ("rows:\n- {site: a, m: {from: 1, to: 1000000}, n: 2, k: 3}\n", 2, "narrow the ranges"),
        ("rows:\n- {site: !!python/name:os.system a, m: 1, n: 2, k: 3}\n", 2, "YAML syntax"),
    ],
    ids=lambda v: str(v)[:20],
)
def test_errors_name_file_line_and_mend(tmp_path, text, line, words):
    path = table(tmp_path, text)
    with pytest.raises(ShapeTableError) as error:
        load_table(path)
    message = str(error.value)
    assert message.startswith(f"{path}:{line}: ")
    assert words in message
    assert "\n" not in message
    assert re.search(r"expected|mend|drop|narrow|every row has", message)


def test_unreadable_files(tmp_path):
    (tmp_path / "latin.yaml").write_bytes(b"rows: \xff\n")
    for name, reason in (
        ("absent.yaml", "No such file"),
        (".", "Is a directory"),
        ("latin.yaml", "not UTF-8"),
    ):
        with pytest.raises(ShapeTableError, match=reason):
            load_table(tmp_path / name)
