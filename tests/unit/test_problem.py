"""Problems: kernels/problem.py."""

from __future__ import annotations

import pytest

from tf_tvm_ops.kernels.problem import MAX_EXTENT, Problem


@pytest.mark.parametrize(
    "fields",
    [
        {"m": 0},
        {"n": -1},
        {"k": MAX_EXTENT + 1},
        {"m": None},
        {"lhs": "n"},
        {"rhs": "m"},
        {"dtype": "int32"},
    ],
    ids=str,
)
def test_fields_are_checked(fields):
    with pytest.raises(ValueError, match=next(iter(fields))):
        Problem(**{"m": 1, "n": 2, "k": 3, **fields})


def test_json_round_trip():
    for problem in (Problem(1, 17, 128, rhs="k"), Problem(None, None, None, "m", "k")):
        assert Problem.from_json(problem.to_json()) == problem


def test_stems_tell_problems_apart():
    problems = {
        Problem(m, n, k, lhs, rhs)
        for m, n, k in ((1, 11, 1), (11, 1, 1), (1, 1, 11), (None, None, None))
        for lhs in "km"
        for rhs in "nk"
    }
    assert len({problem.stem() for problem in problems}) == len(problems)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Problem(1, 5, 7, "m", "n"), Problem(1, 5, 7, "k", "n")),
        (Problem(3, 5, 1, "m", "k"), Problem(3, 5, 1, "k", "n")),
        (Problem(3, 1, 7, "m", "n"), Problem(3, 1, 7, "m", "k")),
        (Problem(3, 1, 1, "m", "n"), Problem(3, 1, 1, "k", "k")),
        (Problem(3, 5, 7, "m", "k"), Problem(3, 5, 7, "m", "k")),
    ],
    ids=str,
)
def test_canonical_layout_of_degenerate_extents(given, expected):
    assert given.canonical() == expected
    assert expected.canonical() == expected


def test_generic_problem_has_no_extents():
    with pytest.raises(ValueError, match="no fixed extents"):
        Problem(None, None, None).extents()


def test_prints_in_one_line():
    assert str(Problem(17, 17, 64, rhs="k")) == "float32 17x17x64 lhs:k rhs:k"
