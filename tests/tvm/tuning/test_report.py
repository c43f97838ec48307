"""The page of a tuning run: what it says is what was measured."""

from __future__ import annotations

import itertools
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tf_tvm_ops.kernels.manifest import Duel
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.targets import TARGETS
from tf_tvm_ops.kernels.tuning.measurer import Outcome
from tf_tvm_ops.kernels.tuning.record import WRONG
from tf_tvm_ops.kernels.tuning.space import space
from tf_tvm_ops.kernels.tuning.tuner import Found
from tf_tvm_ops.tools.bench.report import geometric_mean
from tf_tvm_ops.tools.tune import report
from tf_tvm_ops.tools.tune.results import Results, settings

from . import fake_tuning
from .fake_tuning import CEILINGS, COLD, HOT, LARGE, SMALL, TARGET, document, found, ok, pack, state
from .html_page import Page

_FONT_SIZE = 9.0


def test_values_of_a_row() -> None:
    small, large = Page(document(found(), pack(HOT, COLD))).rows("All problems")
    names = ("problem", "space", "measured", "failed", "multiply adds", "operands in")
    total = len(space(LARGE, TARGETS[TARGET]))
    assert [large[n] for n in names] == [
        *("f32 64x64x64 kk ·2", str(total), "5", "3", f"{2 * 64**3:,}", "L2")
    ]
    assert [large[n] for n in ("model's choice µs", "best µs", "±", "gain")] == [
        *("20.0", "10.0", "0.25", "2.00×")
    ]
    # 2 operations for each of 2 * 64^3 multiply-adds in 10 µs, of 100 GFLOP/s.
    assert [large[n] for n in ("GFLOP/s", "share of ceiling")] == ["104.9", "105%"]
    stock = ("ours, in graph µs", "oneDNN µs", "ours, in graph µs'", "Eigen µs")
    assert [large[n] for n in stock] == ["12.0", "18.0", "12.5", "10.0"]
    assert (large["serves, with oneDNN"], large["serves, without"]) == ("kernel", "stock_faster")
    best = found()[0].state.space[1].choice.to_json()
    assert large["best config"].split()[1:] == [f"{k}={v}" for k, v in list(best.items())[1:]]
    assert large["cost model's choice"] != large["best config"]
    # Nothing was measured of this one's kernel: it serves.
    assert small["serves, with oneDNN"] == "kernel, not measured"
    assert (small["gain"], small["oneDNN µs"], small["operands in"]) == ("1.00×", "–", "L1d")
    assert small["cost model's choice"] == small["best config"]


def test_the_setting_nearest_to_the_workload_stands_for_it() -> None:
    few = replace(HOT, matrices=64, onednn=Duel(1.0, 7.0, 0.1))
    fused = replace(HOT, epilogue="add", onednn=Duel(1.0, 8.0, 0.1))
    (part,) = [Results.of(TARGET, found(), pack(few, fused, COLD, HOT), CEILINGS)]
    assert part.rows[1].timing == HOT


def test_summary() -> None:
    text = Page(document(found(), pack(HOT, COLD))).text
    total = sum(len(space(p, TARGETS[TARGET])) for p in (SMALL, LARGE))
    assert f"7 of {total} measured" in text
    assert "2 wrong, 1 not_built" in text
    assert f"geometric mean {math.sqrt(2):.3f}× of 2 problems" in text
    assert "median 1.50×, greatest 2.00×; 1.05× or more in 1" in text
    assert "Some CPU <9>, 2 cores" in text
    assert "apache-tvm 0.27" in text


def test_settings_against_stock() -> None:
    rows = Page(document(found(), pack(HOT, COLD))).rows("Against stock TensorFlow")
    assert [list(row.values()) for row in rows] == [
        ["none", "hot in cache", "oneDNN", "2", "1", "1", "0", "1.50", "1.50", "1.50"],
        ["none", "hot in cache", "Eigen", "2", "1", "0", "1", "0.80", "0.80", "0.80"],
        ["none", "not in cache", "oneDNN", "2", "1", "1", "0", "1.50", "1.50", "1.50"],
        # Slower, but not by more than the noise.
        ["none", "not in cache", "Eigen", "2", "1", "0", "0", "0.97", "0.97", "0.97"],
    ]
    many = fake_tuning.random_run(fake_tuning.problems(40))
    part = Results.of(TARGET, many, fake_tuning.manifest(many), CEILINGS)
    assert {s.stock: len(s.speedups) for s in settings(part.rows) if s.cache == "hot"} == {
        "onednn": 40,
        "eigen": 40,
    }


def test_failures_are_told_and_escaped() -> None:
    html = document(found(), pack(HOT))
    assert '<script>alert("1' not in html
    assert "&lt;script&gt;alert(&quot;1 &amp; 2&quot;)&lt;/script&gt;" in html
    assert "Some CPU &lt;9&gt;" in html
    text = Page(html).text
    assert "wrong: 2. The first" in text
    # The same message of two candidates is told once, with the first of them.
    assert text.count('alert("1 & 2")') == 1
    assert "not_built: 1. The first" in text
    assert "Failures" not in Page(document(found()[1:])).text


@pytest.mark.parametrize("count", [3, 60, 430])
def test_every_problem_has_a_row(count: int) -> None:
    given = fake_tuning.random_run(fake_tuning.problems(count), trials=4)
    page = Page(document(given, fake_tuning.manifest(given)))
    rows = page.rows("All problems")
    names = [row["problem"] for row in rows]
    assert len(set(names)) == len(names) == count
    counts = [int(row["multiply adds"].replace(",", "")) for row in rows]
    assert counts == sorted(counts)
    assert {"svg", "table", "style"} <= page.tags


@pytest.mark.parametrize("count", [3, 60, 430])
def test_names_in_charts_do_not_overlap(count: int) -> None:
    given = fake_tuning.random_run(fake_tuning.problems(count), trials=4)
    html = document(given, fake_tuning.manifest(given))
    chart = html[html.index("The space of each problem") : html.index("Below the machine")]
    pattern = r'<text [^>]*? x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]+)<'
    texts = [(float(x), float(y), name) for x, y, name in re.findall(pattern, chart)]
    assert len(texts) > min(count, 10)
    if count <= 60:
        rows = sorted(y for _, y, name in texts if " ·" in name)
        assert len(rows) == count
        assert min(b - a for a, b in itertools.pairwise(rows)) > _FONT_SIZE
    else:
        assert not [name for *_, name in texts if " ·" in name]
        bottom = max(y for _, y, name in texts if name[-1] in "kMG")
        ticks = sorted((x, name) for x, y, name in texts if abs(y - bottom) < _FONT_SIZE / 2)
        assert len(ticks) == 11
        for (x, name), (next_x, next_name) in itertools.pairwise(ticks):
            assert next_x - x > 0.7 * _FONT_SIZE * (len(name) + len(next_name)) / 2


def test_charts_name_units_and_series() -> None:
    text = Page(document(found(), pack(HOT, COLD))).text
    for words in (
        *("time, relative to the best candidate", "stock, oneDNN", "stock, Eigen", "candidate"),
        *("cost model's choice", "FLOP for each byte of operands", "GFLOP/s of the best candidate"),
        *("float32: 100 GFLOP/s", "L1d: 200 GB/s", "L2: 100 GB/s", "memory: 10.0 GB/s"),
        *("rule ", "time of the cost model's choice, relative to the best candidate"),
    ):
        assert words in text, words
    assert "float64" not in text[text.index("Below") : text.index("arithmetic, GFLOP/s")]


def test_a_file_of_its_own_for_light_and_dark() -> None:
    html = document(fake_tuning.random_run(fake_tuning.problems(70), trials=3))
    references = Page(html).references
    assert references
    assert all(r.startswith(("#", "data:image/png;base64,")) for r in references)
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)
    used = set(re.findall(r"var\((--\w+)\)", html))
    light, dark = html.split("prefers-color-scheme: dark", 1)
    dark = dark[: dark.index("* {")]
    for name in used:
        assert f"{name}:" in light, name
        assert f"{name}:" in dark, name
    # No colour of the charts is left that only one of them suits.
    chart = html[html.index("<svg") : html.rindex("</svg>")]
    assert set(re.findall(r"#[0-9a-f]{6}\b", chart)) <= {"#808080"}


def test_what_was_not_measured_is_left_out() -> None:
    page = Page(document([Found(state(SMALL, 8, None, ok(1.0)))], None, roofs=None))
    (row,) = page.rows("All problems")
    assert [row[n] for n in ("model's choice µs", "gain", "share of ceiling", "operands in")] == [
        *("–", "–", "–", "–")
    ]
    assert row["serves, with oneDNN"] == "no kernel"
    assert "made without the gate" in page.text
    assert "Below the machine's ceilings" not in page.text
    none = Page(document([Found(state(SMALL, 8, Outcome(WRONG, message="x")))]))
    assert "No candidate was timed." in none.text
    assert len(none.rows("All problems")) == 1


def test_bounds_of_the_correction() -> None:
    """What a knob costs is learned, relative to the mean of a problem's candidates."""
    states, expected = [], []
    for k in range(40, 60):
        made = state(Problem(16, 32, k), 1)
        slower = {
            candidate: 1 + candidate.choice.config.to_json()["unroll"]
            for candidate in made.space
            if candidate.choice.rule.name == "cpu_broadcast"
        }
        for candidate, factor in slower.items():
            made.outcomes[candidate.choice] = ok(candidate.cost * factor)
        mean = geometric_mean(list(slower.values()))
        expected += [factor / mean for factor in slower.values()]
        states.append(made)
    (lesson,) = Results.of(TARGET, [Found(s) for s in states], None, None).lessons
    assert lesson.rule == "cpu_broadcast"
    assert lesson.timed == len(expected)
    assert lesson.least == pytest.approx(min(expected), rel=0.02)
    assert lesson.greatest == pytest.approx(max(expected), rel=0.02)
    assert lesson.greatest > 1.5 * lesson.least
    assert lesson.error_after < 0.1 * lesson.error_before


def test_peer(tmp_path: Path) -> None:
    symbol = found()[0].state.space[1].choice.symbol(LARGE)
    path = tmp_path / "peer.json"
    rows = [{"kernel": symbol, "ours_us": 2.0, "xsmm_us": 3.0}]
    rows.append({"kernel": "other", "ours_us": 2.0, "xsmm_us": math.nan})
    path.write_text(json.dumps({"machine": {}, "results": rows}))
    ratios = report.read_peer(path)
    assert ratios == {symbol: 1.5}
    small, large = Page(document(found(), pack(HOT), **ratios)).rows("All problems")
    assert (small["× libxsmm"], large["× libxsmm"]) == ("–", "1.50")
    path.write_text("{}")
    with pytest.raises(ValueError, match=r"peer.json: not what `tf-tvm-ops bench --peer libxsmm"):
        report.read_peer(path)
    with pytest.raises(ValueError, match="No such file or directory; expected results of bench"):
        report.read_peer(tmp_path / "none.json")
