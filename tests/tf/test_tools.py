"""The command line: `bench`, `doctor`, `inspect`, and the demo's parts."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner
from rich.console import Console

import tf_tvm_ops
from tf_tvm_ops import rewrite
from tf_tvm_ops.kernels.shapes import load_tables
from tf_tvm_ops.tools import demo, demo_model
from tf_tvm_ops.tools.bench import cases, fused, machine, runner, timing, worker, xsmm
from tf_tvm_ops.tools.cli import main

from ..oracle import matmul
from .processes import output_of, run_python, run_with_tensorflow

_TABLE = """
rows:
  - {site: "decode", batch: [256, 8], m: 1, n: [5, 6, 7, 8, 9], k: 16, rhs: k}
  - {site: "encode", batch: [128], m: 17, n: 17, k: 64, lhs: m}
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "shapes.yaml"
    path.write_text(_TABLE, encoding="utf-8")
    return path


def test_help_names_every_command_and_imports_none() -> None:
    printed = output_of(
        """
        import sys
        from click.testing import CliRunner
        from tf_tvm_ops.tools.cli import main
        print(CliRunner().invoke(main, ["--help"]).output)
        print([m for m in ("tensorflow", "tvm", "numpy", "rich", "yaml") if m in sys.modules])
        """
    )
    for command in ("bench", "doctor", "generate", "inspect"):
        assert f"\n  {command} " in printed
    assert printed.endswith("[]")


def test_the_package_is_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tf_tvm_ops", "--version"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    assert done.stdout.strip() == f"tf-tvm-ops, version {tf_tvm_ops.__version__}"


def test_bench_measures_every_setting(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its structure, not its times."""
    # Of a real size, copies of the inputs that do not fit into it take long to make.
    monkeypatch.setattr(runner, "last_level_cache_bytes", lambda: 4 << 20)
    out = tmp_path / "bench.json"
    arguments = ["bench", str(table), "--per-site", "2", "--threads", "1", "--seconds", "0.02"]
    arguments += ["--repeats", "3", "--out", str(out)]
    result = CliRunner().invoke(main, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    for words in ("1 thread, inputs in cache", "inputs not in cache", "geometric mean of 3"):
        assert words in result.output
    document = json.loads(out.read_text(encoding="utf-8"))
    assert document["machine"]["cpu"] == machine.describe().cpu
    found = {
        (m["case"]["site"], m["cache"], m["onednn"], m["implementation"])
        for m in document["measurements"]
    }
    assert found == {
        (site, cache, onednn, implementation)
        for site in ("decode", "encode")
        for cache in ("hot", "cold")
        for onednn, stock in ((True, "stock_onednn"), (False, "stock_eigen"))
        for implementation in (stock, "ours")
    }
    for measurement in document["measurements"]:
        cold = measurement["cache"] == "cold"
        copies = cases.Case(**measurement["case"]).input_bytes
        assert (measurement["input_bytes"] > 4 * copies) == cold
        assert (measurement["input_bytes"] > 2 * (4 << 20)) == cold
    assert {mean["rows"] for mean in document["geometric_means"]} == {3}


def test_bench_checks_answers_before_it_times(table: Path) -> None:
    case = cases.select([table], 1)[0]
    lhs, rhs = case.operands()
    right = matmul(lhs, rhs, case.adj_x, case.adj_y).astype("float32")
    oracle = cases.Oracle(case, lhs, rhs)
    assert oracle.worst_error(right) <= 1
    right[0, 0, 0, 0] += 1e-4
    assert oracle.worst_error(right) > 1
    done = run_with_tensorflow(
        f"""
        import tf_tvm_ops
        from tf_tvm_ops.tools.bench.cases import select
        from tf_tvm_ops.tools.bench import worker
        import pathlib
        real = tf_tvm_ops.batch_matmul
        tf_tvm_ops.batch_matmul = lambda *args: real(*args) + 1e-4
        cases = tuple(select([pathlib.Path({str(table)!r})], 1))
        worker.measure(worker.Job(True, 1, ("hot",), 0, 0.01, 3, (), cases))
        """
    )
    assert done.returncode != 0
    assert done.stdout == ""
    assert "WrongAnswerError: ours" in done.stderr


def test_bench_refuses_two_comparisons_at_once(table: Path) -> None:
    arguments = ["bench", str(table), "--fused", "--peer", "libxsmm"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "give one of them" in result.output


def test_bench_times_stock_as_stock() -> None:
    lhs, rhs = cases.Case("", (2, 8, 17, 64), (2, 8, 17, 64), False, True).operands()
    rewrite.clear_report()

    def stock(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        return tf.linalg.matmul(a, b, transpose_b=True)

    with timing.GraphTimer((lhs, rhs), {"stock": stock}, threads=1) as timer:
        timer.outputs()
        assert len(rewrite.report()) == 0, "outputs of another graph were checked"
        timer.measure(0.01, 3)
    assert len(rewrite.report()) == 0, "another graph was timed"
    assert rewrite.enabled()


def test_bench_measures_what_is_fused(table: Path, tmp_path: Path) -> None:
    """Its structure, not its times."""
    out = tmp_path / "fused.json"
    arguments = ["bench", str(table), "--fused", "--per-site", "1", "--threads", "1"]
    arguments += ["--cache", "hot", "--seconds", "0.02", "--repeats", "3", "--out", str(out)]
    result = CliRunner().invoke(main, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert result.output.count("scale + mask") == 2
    document = json.loads(out.read_text(encoding="utf-8"))
    found = document["fused"]
    assert [(f["case"]["site"], f["threads"], f["cache"]) for f in found] == [
        ("decode", 1, "hot"),
        ("encode", 1, "hot"),
    ]
    for row in found:
        for implementation in ("ours", "stock"):
            assert set(row[implementation]) == {"add", "transpose"}
            for ratio in row[implementation].values():
                assert set(ratio) == {"least", "median", "spread"}
            assert row[f"{implementation}_us"] > 0
        assert row["served_by"].startswith(("bmm_", "stock"))


def test_noise_leaves_no_time_below_nothing() -> None:
    """Of an op that takes less than what starting a graph takes from one time to the next."""
    job = worker.Job(True, 1, ("hot",), 0, 0.01, 3, (), (cases.Case("", (1,), (1,), False, False),))
    times = {"ours": [-1.0, 0.0, 2.0], "stock": [0.0] * 3, "ours add": [-3.0, 1.0, 1.0]}
    samples = {"case": 0, "cache": "hot", "served_by": "bmm", "samples": times}
    found = fused._fused(job, samples)
    assert found.ours_us == found.stock_us == worker.LEAST_US
    assert found.ours["add"].least == 1.0
    assert found.ours["add"].median > 0


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("batch_matmul_add = lambda *a, **k: real['batch_matmul_add'](*a, **k) + 1e-3", "ours add"),
        (
            "batch_matmul_add = lambda a, b, c, **k: real['batch_matmul_add'](a, b, 0 * c, **k)",
            "ours add",
        ),
        (
            "batch_matmul_transpose = lambda *a, **k: real['batch_matmul_transpose'](*a, **k)"
            "[::-1]",
            "ours transpose",
        ),
    ],
    ids=["off", "addend", "transpose"],
)
def test_bench_checks_fused_answers_before_it_times(table: Path, change: str, fault: str) -> None:
    done = run_with_tensorflow(
        f"""
        import pathlib
        import tf_tvm_ops
        from tf_tvm_ops.tools.bench import fused, worker
        from tf_tvm_ops.tools.bench.cases import select
        names = ("batch_matmul_add", "batch_matmul_transpose")
        real = {{name: getattr(tf_tvm_ops, name) for name in names}}
        tf_tvm_ops.{change}
        cases = tuple(select([pathlib.Path({str(table)!r})], 1))
        fused.measure(worker.Job(True, 1, ("hot",), 0, 0.01, 3, (), cases))
        """
    )
    assert done.returncode != 0
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert all("samples" not in line for line in lines)
    assert lines[-1]["running"] == fault
    assert f"WrongAnswerError: {fault}:" in done.stderr


@pytest.mark.parametrize("module", ["worker", "fused"])
def test_bench_measures_stock_as_stock(table: Path, module: str) -> None:
    """Not as what the rewriter would make of it."""
    done = run_with_tensorflow(
        f"""
        import pathlib
        from tf_tvm_ops import rewrite
        from tf_tvm_ops.tools.bench import fused, worker
        from tf_tvm_ops.tools.bench.cases import select
        cases = tuple(select([pathlib.Path({str(table)!r})], 1))
        {module}.measure(worker.Job(True, 1, ("hot",), 0, 0.01, 3, (), cases))
        print("rewritten", len(rewrite.report().outcomes))
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "rewritten 0"


def test_bench_picks_sizes_across_each_site(table: Path) -> None:
    chosen = cases.select([table], 2)
    assert [(c.site, c.rhs_shape) for c in chosen] == [
        ("decode", (256, 8, 6, 16)),
        ("decode", (256, 8, 8, 16)),
        ("encode", (128, 64, 17)),
    ]
    assert (chosen[2].adj_x, chosen[2].adj_y) == (True, False)
    assert chosen[2].lhs_shape == (128, 64, 17)


@pytest.mark.parametrize("reason", ["library", "compiler"])
def test_comparison_with_a_library_that_is_missing(
    reason: str, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason == "library":
        monkeypatch.setattr(xsmm, "_LIBRARIES", ("-lno_such_library",))
    else:
        monkeypatch.setenv("PATH", "")
    result = CliRunner().invoke(main, ["bench", str(table), "--peer", "libxsmm"])
    assert result.exit_code == 0, result.output
    (line,) = result.output.strip().splitlines()
    assert line.startswith("No comparison with libxsmm: ")
    # Without its headers the compiler stops before it looks for the library.
    assert ("libxsmm-dev" if reason == "library" else "C compiler") in line


def test_doctor_finds_nothing_wrong() -> None:
    done = run_python("from tf_tvm_ops.tools.cli import main; main(['doctor'])", COLUMNS="200")
    assert done.returncode == 0, done.stdout
    for words in ("cpu:x86-64-v3", "libtf_tvm_ops.so", "TF_TVM_OPS_FALLBACK", "No problem found."):
        assert words in done.stdout


def test_doctor_has_a_line_for_each_problem(tmp_path: Path) -> None:
    done = run_python(
        "from tf_tvm_ops.tools.cli import main; main(['doctor'])",
        COLUMNS="200",
        TF_TVM_OPS_FALLBACK="fastest",
        TF_TVM_OPS_PACKS=str(tmp_path),
    )
    assert done.returncode == 1
    problems = [line for line in done.stdout.splitlines() if line.startswith("problem:")]
    assert len(problems) == 2
    assert "TF_TVM_OPS_FALLBACK='fastest'" in problems[0]
    assert str(tmp_path) in problems[1]
    assert "No problem found." not in done.stdout


def test_doctor_without_tensorflow() -> None:
    done = run_python(
        "import sys; sys.modules['tensorflow'] = None\n"
        "from tf_tvm_ops.tools.cli import main; main(['doctor'])",
        COLUMNS="200",
    )
    assert done.returncode == 1
    (problem,) = [line for line in done.stdout.splitlines() if line.startswith("problem:")]
    assert "need TensorFlow, which is not installed" in problem


def test_inspect_lists_the_default_pack() -> None:
    pack = str(tf_tvm_ops.packs.loaded()[-1].path)
    result = CliRunner().invoke(main, ["inspect", pack, "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.output)
    kernels = {(k["target"], k["problem"]["m"], k["problem"]["n"]) for k in document["kernels"]}
    assert ("cpu:x86-64-v3", 17, 17) in kernels
    assert ("cpu:x86-64-v3", None, None) in kernels
    text = CliRunner().invoke(main, ["inspect", pack], env={"COLUMNS": "300"}).output
    assert document["kernels"][0]["symbol"] in text


def test_inspect_of_something_else(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["inspect", str(tmp_path)])
    assert result.exit_code == 1
    assert str(tmp_path) in result.output
    assert len(result.output.strip().splitlines()) == 1


def test_demo_layers_are_those_of_its_table() -> None:
    listed = {(*row.batch, row.m, row.n, row.k) for row in load_tables([demo.TABLE])}
    layers = set()
    for layer in demo.LAYERS:
        layers.add((layer.batch, demo.HEADS, layer.queries, layer.keys, demo.DEPTH))
        layers.add((layer.batch, demo.HEADS, layer.queries, demo.DEPTH, layer.keys))
    assert listed == layers


def test_demo_says_so_when_an_answer_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "LAYERS", demo.LAYERS[-1:])
    monkeypatch.setattr(demo, "SECONDS", 0.01)
    monkeypatch.setattr(demo, "REPEATS", 3)
    pack = tf_tvm_ops.packs.loaded()[-1].path
    console = Console(record=True, width=200)
    assert demo.compare(console, machine.describe(), pack) == 0
    assert "Same answer" in console.export_text()
    monkeypatch.setattr(
        "tf_tvm_ops.ops.batch_matmul",
        lambda a, b, adj_y: tf.linalg.matmul(a, b, transpose_b=adj_y) * 1.001,
    )
    assert demo.compare(console, machine.describe(), pack) == 1
    assert "WRONG" in console.export_text()


def test_demo_runs_a_model_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_model, "SECONDS", 0.001)
    monkeypatch.setattr(demo_model, "REPEATS", 3)
    monkeypatch.setattr(demo_model, "LAYERS", 2)
    console = Console(record=True, width=200)
    assert demo_model.show(console) == 0
    printed = console.export_text()
    assert "12 products, 4 rewritten" in printed
    assert "Same answer" in printed
    monkeypatch.setattr(demo_model, "TOLERANCE", 0.0)
    assert demo_model.show(console) == 1
    assert "WRONG" in console.export_text()


def test_demo_times_a_stock_model_as_stock() -> None:
    import keras

    words = keras.Input((None, demo_model.WIDTH))
    model = keras.Model(words, keras.layers.MultiHeadAttention(4, 64)(words, words))
    _, report = demo_model.both_ways(model)
    assert len({outcome.graph for outcome in report}) == 1
    assert len(report.rewritten) == 2


def test_one_graph_serves_inputs_of_other_extents() -> None:
    ways = {"stock": tf.linalg.matmul, "ours": tf_tvm_ops.batch_matmul}
    rng = np.random.default_rng()

    def inputs(m: int, n: int, k: int) -> tuple[cases.Array, cases.Array]:
        return tuple(rng.standard_normal(s).astype(np.float32) for s in ((2, m, k), (2, k, n)))

    first = inputs(3, 5, 7)
    with timing.GraphTimer(first, ways, threads=1, most_ops=24) as timer:
        for (a, b), total, copies in (
            (first, 0, 1),
            (inputs(9, 4, 2), 1000, 6),
            (inputs(1, 1, 1), 1600, 128),
            (inputs(3, 5, 7), 0, 1),
        ):
            timer.load((a, b), total)
            for got in timer.outputs().values():
                np.testing.assert_allclose(got, a @ b, rtol=1e-4, atol=1e-5)
            for found in timer.measure(0.001, 3).values():
                assert found.input_bytes == copies * (a.nbytes + b.nbytes)
                assert 4 <= found.ops <= 24
                assert copies == 1 or copies % found.ops == 0


def test_cold_inputs_are_those_read_longest_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """No way to compute has copies of its own, either: they may lie better than others."""
    read: list[tuple[str, int]] = []
    one = np.ones((1, 4, 4), np.float32)
    ways = {"Identity": lambda x, _: tf.identity(x), "Neg": lambda x, _: tf.negative(x)}
    with timing.GraphTimer((one, one), ways, threads=1) as timer:
        timer.load((one, one), 2 * 64 * one.nbytes)
        copy_of = {reads[0].op.name: index for index, reads in enumerate(timer._reads)}
        real = timer._callable

        def recorded(ops):
            call, copies, todo = real(ops), [], list(ops[:1])
            fetched = {op.name for op in ops} & set(copy_of)
            while todo:
                op = todo.pop()
                copies += [(op.type, copy_of[x.op.name]) for x in op.inputs if x.op.name in copy_of]
                todo += op.control_inputs
            assert not copies or len(fetched) == len(copies), "an empty run reads more"
            return lambda: (read.extend(copies), call())

        monkeypatch.setattr(timer, "_callable", recorded)
        timer.samples(1e-6, 40)
    for index, (_, copy) in enumerate(read):
        assert copy not in [c for _, c in read[max(0, index - 56) : index]]
    for name in ways:
        assert {copy for way, copy in read if way == name} == set(range(64))


def test_no_way_is_always_timed_after_the_same_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ran before leaves caches and threads in a state that one way must not have to itself."""
    order: list[int] = []
    monkeypatch.setattr(timing, "_seconds", lambda run: order.append(id(run)) or 1e-3)
    one = np.ones((1, 2, 2), np.float32)
    ways = {"a": tf.identity, "b": tf.negative}
    with timing.GraphTimer((one,), ways, threads=1) as timer:
        timer.samples(0.01, 8)
    turns = order[-16:]
    first, second = dict.fromkeys(turns)
    pairs = list(itertools.pairwise(turns))
    for way, other in ((first, second), (second, first)):
        before = [a for a, b in pairs if b == way]
        assert len(before) >= 7
        assert abs(before.count(other) - before.count(way)) <= 1
