"""What the GPU check times, and what it makes of the times."""

from __future__ import annotations

import math

import pytest

from tf_tvm_ops.kernels.manifest import EMULATED, ImageEntry, KernelEntry, Manifest
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.shapes import ShapeRow
from tf_tvm_ops.tools.bench.cases import default_tables
from tf_tvm_ops.tools.gpu_check import bundle, cases, images, parts, results
from tf_tvm_ops.tools.gpu_check.cases import MASK, TRANSPOSE, Case, epilogue_of, spread
from tf_tvm_ops.tools.gpu_check.results import MET, NOT_MEASURED, NOT_MET, Record, marks

HEADLINE = Case("translation", "old", 64, 8, Problem(1, 17, 128), TRANSPOSE)
OTHER = Case("translation", "other", 2, 3, Problem(4, 5, 6), TRANSPOSE)
BERT = Case("bert", "scores", 8, 12, Problem(128, 128, 64, rhs="k"), MASK)


def record(case: Case, **times: float) -> Record:
    """Both settings with the same times: ours, fused, cublas, passes."""
    ways = {"ours": "ours", "fused": "ours fused", "cublas": "cuBLAS", "passes": "cuBLAS + passes"}
    measurements = [
        {"way": ways[name], "cache": cache, "median_us": time}
        for name, time in times.items()
        for cache in ("hot", "cold")
    ]
    return Record(case, "cuBLAS", "symbol", measurements, {})


def verdicts(wanted: list[Case], *found: Record) -> list[str]:
    return [mark.verdict for mark in marks(wanted, found)]


def test_all_marks_met():
    found = [
        record(HEADLINE, ours=2.0, fused=3.0, cublas=2.0, passes=6.0),
        record(OTHER, ours=1.0, fused=1.0, cublas=1.5, passes=2.0),
    ]
    assert verdicts([HEADLINE, OTHER], *found) == [MET] * 5


def test_headline_is_judged_by_its_slower_layout():
    transposed = Case("translation", "old", 64, 8, Problem(1, 17, 128, rhs="k"), TRANSPOSE)
    found = [record(HEADLINE, fused=2.0), record(transposed, fused=3.1)]
    assert verdicts([HEADLINE, transposed], *found)[0] == NOT_MET
    assert verdicts([HEADLINE, transposed], found[0])[0] == NOT_MEASURED


def test_geometric_mean_is_of_the_translation_table_alone():
    found = [
        record(HEADLINE, ours=1, fused=1.0, cublas=1, passes=4.0),
        record(OTHER, ours=1, fused=1.0, cublas=1, passes=1.0),
        record(BERT, ours=1, fused=1.0, cublas=1, passes=1.0),
    ]
    assert verdicts([HEADLINE, OTHER, BERT], *found)[1:3] == [MET, MET]
    found[1] = record(OTHER, ours=1, fused=1.0, cublas=1, passes=0.99)
    assert verdicts([HEADLINE, OTHER, BERT], *found)[1:3] == [NOT_MET, NOT_MET]


def test_one_slower_kernel_is_one_too_many():
    found = [
        record(HEADLINE, ours=1.0, fused=1.0, cublas=2.0, passes=9.0),
        record(OTHER, ours=1.0, fused=1.0, cublas=0.99, passes=9.0),
    ]
    assert verdicts([HEADLINE, OTHER], *found)[3:] == [MET, NOT_MET]
    (mark,) = [m for m in marks([HEADLINE, OTHER], found) if m.verdict == NOT_MET]
    assert "2 of 4 slower" in mark.detail
    assert str(OTHER) in mark.detail


def test_a_part_of_the_products_is_said_to_be_one():
    found = [record(HEADLINE, ours=1.0, fused=1.0, cublas=2.0, passes=9.0)]
    met = f"{MET} so far"
    assert verdicts([HEADLINE, OTHER], *found) == [MET, met, met, met, met]


def test_nothing_is_met_without_measurements():
    assert verdicts([HEADLINE, OTHER]) == [NOT_MEASURED] * 5


def test_ratios_are_of_one_part():
    """Times of parts that ran at different times are not compared."""
    ours, peer = record(OTHER, fused=1.0), record(OTHER, passes=5.0)
    assert results.ratios([ours, peer], "ours fused", "cuBLAS + passes", "hot") == []


def test_means():
    found = [record(OTHER, fused=1.0, passes=2.0), record(BERT, fused=1.0, passes=8.0)]
    means = {(m["table"], m["site"], m["cache"]): m for m in results.means(found)}
    assert math.isclose(means["", "", "hot"]["mean"], 4.0)
    assert means["", "", "hot"]["least"] == 2.0
    assert math.isclose(means["bert", "scores", "cold"]["mean"], 8.0)
    assert means["translation", "", "hot"]["cases"] == 1


@pytest.mark.parametrize(
    ("row", "epilogue"),
    [
        (ShapeRow("scores", (64, 8), 17, 17, 64, rhs="k"), MASK),
        (ShapeRow("values", (64, 8), 17, 64, 17), TRANSPOSE),
        (ShapeRow("headline", (64, 8), 1, 17, 128, rhs="k"), TRANSPOSE),
        (ShapeRow("a step of decoding", (16, 4, 8), 1, 17, 128, rhs="k"), MASK),
    ],
)
def test_epilogue(row, epilogue):
    assert epilogue_of(row) == epilogue


def test_spread_begins_with_the_headline_and_takes_sites_in_turns():
    rows = [Case("translation", f"s{i % 3}", 1, i + 1, Problem(2, 3, 4), MASK) for i in range(30)]
    order = spread([BERT, *rows, HEADLINE])
    assert order[0] == HEADLINE
    assert {case.site for case in order[1:4]} == {"s0", "s1", "s2"}
    assert order[4] == BERT
    assert sorted(map(str, order)) == sorted(map(str, [BERT, *rows, HEADLINE]))
    # The middle one of a site, then the middles of both halves.
    first = [case.heads for case in order if case.site == "s0"][:3]
    assert first == [16, 7, 25]


def test_cases_survive_the_file(tmp_path):
    cases.write(tmp_path, [HEADLINE, OTHER, BERT])
    assert cases.read(tmp_path) == [HEADLINE, OTHER, BERT]


def entry(target: str, *problems: Problem) -> ImageEntry:
    kernels = tuple(KernelEntry(f"{target}{i}", p, {}, 0) for i, p in enumerate(problems))
    return ImageEntry(target, "file.so", 0, "", kernels, EMULATED)


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        (90, ["cuda:sm_90", "cuda:compute_80"]),
        (89, ["cuda:sm_86", "cuda:sm_80", "cuda:compute_80"]),
        (80, ["cuda:sm_80", "cuda:compute_80"]),
        (75, []),
        (103, ["cuda:sm_100", "cuda:compute_80"]),
    ],
)
def test_usable_images(capability, expected):
    names = ("cuda:compute_80", "cuda:sm_80", "cuda:sm_86", "cuda:sm_90", "cuda:sm_100", "cuda:x")
    found = Manifest(2, {}, tuple(entry(name) for name in names))
    assert [image.target for image in images.usable(found, capability)] == expected


def test_kernel_is_chosen_as_the_dispatcher_does():
    generic = Problem(None, None, None, rhs="k")
    best, last = entry("best", generic), entry("last", Problem(3, 4, 5, rhs="k"), generic)
    fixed = images.choose([best, last], Problem(3, 4, 5, rhs="k"))
    assert fixed is not None
    assert fixed.image.target == "last"
    other = images.choose([best, last], Problem(3, 4, 6, rhs="k"))
    assert other is not None
    assert (other.image.target, other.kernel.problem) == ("best", generic)
    assert images.choose([best, last], Problem(3, 4, 6)) is None


def test_tables_that_come_with_the_package_have_the_headline():
    problems = {row.problem for path in default_tables() for row in bundle.load_table(path)}
    kept = [entry("cuda:sm_90", *problems)]
    found = bundle._cases(kept, default_tables())
    assert sum(case.is_headline for case in found) == 2
    assert all(case.is_headline for case in found[:2])
    assert sum(case.table == cases.TRANSLATION for case in found) > 400


def test_deadline_in_the_past_begins_nothing(tmp_path):
    outcome = parts.run(tmp_path, "check", ["a", "b"], deadline=0.0, item_seconds=1.0)
    assert (outcome.not_reached, outcome.workers) == (["a", "b"], 0)


def test_worker_that_does_not_start_is_one_problem(tmp_path):
    """Not a fault of each item, and not tried again and again."""
    (tmp_path / "run.py").write_text("raise SystemExit('nothing to run')")
    outcome = parts.run(tmp_path, "check", ["a", "b"], deadline=math.inf, item_seconds=1.0)
    assert outcome.workers == 1
    assert "nothing to run" in outcome.problem
    assert outcome.not_reached == ["a", "b"]
    assert outcome.crashed == {}
