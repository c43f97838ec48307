"""``tf-tvm-ops tune`` from a table of shapes to a pack that knows where it wins."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.unit.fake_packs import edit_manifest
from tf_tvm_ops.kernels import manifest
from tf_tvm_ops.kernels.manifest import Duel, KernelEntry, Timing
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.shapes import load_tables
from tf_tvm_ops.kernels.targets import TARGETS
from tf_tvm_ops.kernels.tuning import record
from tf_tvm_ops.tools.bench import fused, runner
from tf_tvm_ops.tools.cli import main
from tf_tvm_ops.tools.tune import fallback, gate

from .processes import output_with_tensorflow

TARGET = next(target.name for target in TARGETS.values() if target.runs_here())
TABLE = """
rows:
- {site: scores, batch: [4, 2], m: 3, n: 5, k: 7}
- {site: more scores, batch: [64, 2], m: 3, n: 5, k: 7}
- {site: values, batch: [2, 2], m: 1, n: 17, k: 8, rhs: k}
"""


class Folder:
    """Where a run of the command reads and writes."""

    def __init__(self, path: Path) -> None:
        self.table = path / "table.yaml"
        self.table.write_text(TABLE)
        self.pack = path / "pack"
        self.records = path / "records.jsonl"
        self._objects = path / "objects"

    def tune(self, *more: str) -> Result:
        arguments = ["--shapes", self.table, "--target", TARGET, "--out", self.pack]
        arguments += ["--records", self.records, "--objects", self._objects, "--jobs", "1"]
        return CliRunner().invoke(main, ["tune", *map(str, arguments), *more])


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Folder, Result]:
    folder = Folder(tmp_path_factory.mktemp("tune"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fallback, "_SAMPLES", 4)
        result = folder.tune("--trials", "3", "--budget", "10m")
    assert result.exit_code == 0, result.output
    return folder, result


def test_every_kernel_was_measured_against_stock(tuned) -> None:
    folder, result = tuned
    (image,) = manifest.load(folder.pack).images
    own = [kernel for kernel in image.kernels if not kernel.problem.is_generic]
    assert len(own) == 2
    for kernel in own:
        bare = {t.matrices for t in kernel.timings if (t.epilogue, t.cache) == ("none", "hot")}
        # The smallest and the largest batch of the table.
        assert bare == ({8, 128} if kernel.problem.m == 3 else {4})
        for timing in kernel.timings:
            assert len(timing.duels) == 2
            for duel in timing.duels:
                assert 0 <= duel.kernel_us < 1e5
                assert 0 <= duel.stock_us < 1e5
                assert duel.noise_us >= 0
    assert "6 candidates of 2 problems measured, 0 failed" in result.output
    assert "of 2 measured serve in every setting" in result.output


def test_generic_kernels_have_models_where_the_tables_need_them(tuned) -> None:
    folder, _ = tuned
    (image,) = manifest.load(folder.pack).images
    modelled = {k.problem.rhs for k in image.kernels if k.model is not None}
    assert modelled == {"n", "k"}
    for kernel in image.kernels:
        if kernel.model is not None:
            assert kernel.problem.is_generic
            assert sorted(kernel.model) == ["eigen", "kernel", "onednn", "pass"]


def test_pack_is_served_as_it_was_measured(tuned) -> None:
    folder, _ = tuned
    (image,) = manifest.load(folder.pack).images
    (kernel,) = (k for k in image.kernels if k.problem.m == 3)
    code = """
    import numpy as np
    from tf_tvm_ops.ops import served_by
    for batch in (4, 64):
        a, b = np.ones((batch, 2, 3, 7), "f"), np.ones((batch, 2, 7, 5), "f")
        print(served_by(a, b).numpy().decode())
    """
    served = output_with_tensorflow(
        code, TF_TVM_OPS_PACKS=str(folder.pack), TF_ENABLE_ONEDNN_OPTS="1"
    )
    expected = []
    for matrices in (8, 128):
        won = kernel.expected_to_win(matrices, "none", onednn=True)
        expected.append(kernel.symbol if won else "stock (stock_faster)")
    assert served.splitlines() == expected


def test_second_run_measures_no_candidate_again(tuned) -> None:
    folder, _ = tuned
    before = folder.records.read_bytes()
    first = {k.problem: k.symbol for k in manifest.load(folder.pack).images[0].kernels}
    result = folder.tune("--trials", "3", "--no-gate")
    assert result.exit_code == 0, result.output
    assert folder.records.read_bytes() == before
    (image,) = manifest.load(folder.pack).images
    assert {k.problem: k.symbol for k in image.kernels} == first
    assert not any(kernel.timings or kernel.model for kernel in image.kernels)


def test_pack_follows_the_records(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.tune("--trials", "4", "--no-gate").exit_code == 0
    lines = [json.loads(line) for line in folder.records.read_text().splitlines()]
    slowest = max((r for r in lines if r["problem"]["m"] == 3), key=lambda r: r["median_us"])
    slowest["median_us"] = 1e-3
    record.append(folder.records, [record.Record.from_json(slowest)])
    assert folder.tune("--trials", "4", "--no-gate").exit_code == 0
    (image,) = manifest.load(folder.pack).images
    (kernel,) = (k for k in image.kernels if k.problem.m == 3)
    assert dict(kernel.config) == slowest["config"]


def results_of_a_fork(job, module):
    """As the process that measures, without importing TensorFlow once more."""
    code = f"from {module} import measure, worker\nmeasure(worker.Job.load({job.dump()!r}))"
    onednn = "1" if job.onednn else "0"
    yield from map(
        json.loads, output_with_tensorflow(code, TF_ENABLE_ONEDNN_OPTS=onednn).splitlines()
    )


def crash(running: str, sites: set[str], settings: tuple[bool, ...] = (True, False)):
    """As the process that measures, which ends while it runs ``running`` of some products.

    With oneDNN on, off, or both, as ``settings`` say.
    """

    def results(job, module):
        for result in results_of_a_fork(job, module):
            yield result
            site = job.cases[result["case"]].site
            if job.onednn in settings and site in sites and result.get("running") == running:
                raise runner.WorkerError("ended with code -6")

    return results


@pytest.mark.parametrize("place", [0, 1, 3])
def test_stock_that_ends_the_process_costs_its_own_product_alone(
    place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = ["a", "b", "c", "d"]
    monkeypatch.setattr(gate.runner, "results", crash("stock", {sites[place]}))
    cases = [gate.Case(site, (2, 2, 3), (2, 3, 2), False, False) for site in sites]
    kernel = KernelEntry("bmm", Problem(2, 2, 3), {}, 0)
    entrants = [gate._Entrant(kernel, case) for case in cases]
    job = replace(runner.make_job((), ("hot",), (), 0.01, 3), bare=True)
    notes: list[str] = []
    faults = gate._Faults(notes)
    found = dict(gate._results(job, entrants, onednn=True, faults=faults))
    assert [bool(found[index]) for index in range(4)] == [index != place for index in range(4)]
    assert len({result["served_by"] for result in found.values() if result}) == 1
    (note,) = notes
    assert note == (
        "not measured with oneDNN on, and serves there: bmm: stock failed: ended with code -6"
    )
    assert not faults.kernels


@pytest.fixture
def untimed(tuned) -> Folder:
    """A pack of the same kernels, before the gate."""
    folder, _ = tuned
    assert folder.tune("--trials", "3", "--no-gate").exit_code == 0
    return folder


def timings_of(folder: Folder, notes: list[str]) -> dict[int, list[Timing]]:
    """What the gate finds of the kernels of the table, by M."""
    rows = load_tables([folder.table])
    (image,) = gate.gate(folder.pack, TARGET, rows, 1, lambda *step: None, notes).images
    own = [kernel for kernel in image.kernels if not kernel.problem.is_generic]
    return {kernel.problem.m: list(kernel.timings) for kernel in own}


@pytest.mark.parametrize("setting", [True, False])
def test_stock_that_fails_in_one_setting_leaves_the_other_half(
    untimed: Folder, setting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not asked again in later steps; what it did in the other setting decides there."""
    monkeypatch.setattr(gate.runner, "results", crash("stock", {"values"}, (setting,)))
    # So every step is made.
    monkeypatch.setattr(gate, "_CLEAR_WIN", math.inf)
    monkeypatch.setattr(gate, "_serves", lambda kernel, timings: False)
    notes: list[str] = []
    found = timings_of(untimed, notes)
    assert {(t.cache, t.epilogue) for t in found[1]} == {
        *(("hot", epilogue) for epilogue in ("none", "add", "transpose")),
        ("cold", "none"),
    }
    for timing in found[1]:
        kept, missing = timing.onednn, timing.eigen
        if setting:
            kept, missing = missing, kept
        assert missing is None
        assert kept is not None
        assert kept.stock_us > 0
    assert all(timing.onednn and timing.eigen for timing in found[3])
    (note,) = notes
    on = "on" if setting else "off"
    assert note.startswith(f"not measured with oneDNN {on}, and serves there: bmm_f32_m1_n17_k8_")


def test_stock_that_fails_in_both_settings_is_recorded(
    untimed: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For another number of matrices the kernel may have lost, and that would be the nearest."""
    monkeypatch.setattr(gate.runner, "results", crash("stock", {"more scores"}))
    notes: list[str] = []
    found = timings_of(untimed, notes)
    failed = [t for t in found[3] if t.matrices == 128]
    assert [(t.epilogue, t.onednn, t.eigen) for t in failed] == [("none", None, None)] * len(failed)
    assert failed
    assert all(t.onednn and t.eigen for t in found[3] if t.matrices == 8)
    assert len(notes) == 2


def test_fused_stock_that_fails_leaves_what_was_measured_bare(
    untimed: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate.runner, "results", crash("stock add", {"values"}, (True,)))
    monkeypatch.setattr(gate, "_serves", lambda kernel, timings: False)
    by_epilogue = {t.epilogue: t for t in timings_of(untimed, [])[1] if t.cache == "hot"}
    bare, add = by_epilogue["none"], by_epilogue["add"]
    assert bare.onednn is not None
    assert bare.eigen is not None
    assert add.onednn is None
    assert add.eigen is not None


def test_process_that_ends_while_both_take_turns_blames_neither(
    untimed: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate.runner, "results", crash(fused.TIMING, {"values"}, (True,)))
    notes: list[str] = []
    found = timings_of(untimed, notes)
    assert found[1] == []
    assert all(timing.onednn and timing.eigen for timing in found[3])
    (note,) = notes
    assert note.startswith("not measured: bmm_f32_m1_n17_k8_")


def test_kernel_that_fails_in_a_graph_is_left_out(
    untimed: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate.runner, "results", crash("ours", {"values"}))
    notes: list[str] = []
    found = timings_of(untimed, notes)
    assert list(found) == [3]
    assert found[3]
    (note,) = notes
    assert note.startswith("left out bmm_f32_m1_n17_k8_lk_rk_")
    assert note.endswith("ended with code -6")


def test_duel_is_of_the_same_rounds() -> None:
    """A machine that slows down for both says nothing of who is faster."""
    stock = [10.0, 100.0, 20.0, 50.0, 11.0, 90.0, 30.0]
    kernel = [us - 1 for us in stock]
    assert gate.duel(kernel, stock).won
    assert gate.duel(kernel, stock).noise_us == pytest.approx(0.0)
    assert not gate.duel(stock, kernel).won
    assert not Duel(1.0, 1.1, 0.2).won
    assert math.isclose(gate.duel([1.0] * 7, [2.0] * 7).stock_us, 2.0)
    # A manifest with a negative time would be refused as a whole.
    assert 0 < gate.duel([-1.0] * 7, [2.0] * 7).kernel_us < 0.1


def test_gate_needs_the_pack_to_be_used(tuned, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that do not serve, as those that lost before, are not measured."""
    folder, _ = tuned
    monkeypatch.setattr(gate.runner, "results", results_of_a_fork)
    lost = Duel(2.0, 1.0, 0.0).to_json()
    timing = {"matrices": 8, "threads": 1, "cache": "hot", "epilogue": "none"}

    def edit(document: dict) -> None:
        for kernel in document["images"][0]["kernels"]:
            kernel["timings"] = [{**timing, "onednn": lost, "eigen": lost}]

    edit_manifest(folder.pack, edit)
    rows = load_tables([folder.table])
    (image,) = gate.gate(folder.pack, TARGET, rows, 1, lambda *step: None, []).images
    assert not any(kernel.timings for kernel in image.kernels if not kernel.problem.is_generic)
