"""The page of a tuning run, as `tune --report` and `inspect --report` make it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tf_tvm_ops.kernels import build
from tf_tvm_ops.kernels.manifest import FILE_NAME
from tf_tvm_ops.kernels.targets import TARGETS
from tf_tvm_ops.kernels.tuning import ceilings, machine, record
from tf_tvm_ops.kernels.tuning.backend import CpuBackend
from tf_tvm_ops.kernels.tuning.record import Record
from tf_tvm_ops.tools.bench.machine import Machine
from tf_tvm_ops.tools.cli import main
from tf_tvm_ops.tools.tune import report, session

from .fake_tuning import CEILINGS, HOT, TARGET, document, found, pack
from .html_page import Page

HERE = Machine("Some CPU <9>", 2, TARGET, ("L1d 32 KiB",), "Linux", {"numpy": "2"}, 0.0)


@pytest.fixture
def no_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "measure", lambda target: CEILINGS)


def tune(folder: Path, path: Path, *more: str) -> Result:
    table = folder / "shapes.yaml"
    table.write_text('rows: [{site: "a", batch: [8], m: 4, n: 8, k: 16}]\n')
    arguments = ["tune", "--shapes", table, "--target", TARGET, "--out", folder / "pack"]
    arguments += ["--records", folder / "r.jsonl", "--objects", folder / "objects"]
    return CliRunner().invoke(main, [str(a) for a in [*arguments, "--report", path, *more]])


@pytest.mark.usefixtures("no_measuring")
def test_tune_writes_it_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = session.Summary(found={TARGET: found()}, pack=pack(HOT))
    monkeypatch.setattr(session, "run", lambda *arguments: summary)
    path = tmp_path / "report.html"
    result = tune(tmp_path, path)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[-1] == f"report: {path}"
    assert len(Page(path.read_text(encoding="utf-8")).rows("All problems")) == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.html", "shapes.yaml"]


@pytest.mark.usefixtures("no_measuring")
def test_a_folder_that_went_away_is_one_line_after_the_pack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()

    def run(*arguments: object) -> session.Summary:
        folder.rmdir()
        return session.Summary(found={TARGET: found()}, pack=pack(HOT))

    monkeypatch.setattr(session, "run", run)
    result = tune(tmp_path, folder / "report.html")
    assert result.exit_code == 2
    *_, pack_line, error = result.output.splitlines()
    assert "2 kernels, each checked against float64" in pack_line
    assert error.startswith("Error: ")
    assert "report.html: cannot be written (No such file or directory)" in error


def test_kernels_for_gpus_have_no_ceilings_of_this_machine(tmp_path: Path) -> None:
    report.write(tmp_path / "gpu.html", {"cuda:sm_90": found()}, None, ["cuda:sm_90"])
    page = Page((tmp_path / "gpu.html").read_text(encoding="utf-8"))
    assert [row["share of ceiling"] for row in page.rows("All problems")] == ["–", "–"]
    assert [p.name for p in tmp_path.iterdir()] == ["gpu.html"]


@pytest.mark.usefixtures("no_measuring")
@pytest.mark.parametrize("elsewhere", [[], ["--tracker", "127.0.0.1:9190", "--key", "k"]], ids=str)
def test_ceilings_are_those_of_where_candidates_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: list[str]
) -> None:
    summary = session.Summary(found={TARGET: found()}, pack=pack(HOT))
    monkeypatch.setattr(session, "run", lambda *arguments: summary)
    result = tune(tmp_path, tmp_path / "report.html", *elsewhere)
    assert result.exit_code == 0, result.output
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert ("Below the machine" in text) == (not elsewhere)
    assert ("another machine" in text) == bool(elsewhere)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no/such/report.html", "cannot be written (No such file or directory)"),
        ("", "is a folder; expected the name of a file"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_the_run(
    tmp_path: Path, name: str, message: str
) -> None:
    result = tune(tmp_path, tmp_path / name)
    assert result.exit_code == 2
    assert message in result.output
    assert result.output.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["shapes.yaml"]


def test_matplotlib_is_missed_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = tune(tmp_path, tmp_path / "report.html")
    assert result.exit_code == 2
    assert "pip install 'tf-tvm-ops[plots]'" in result.output
    assert result.output.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["shapes.yaml"]


def inspect(pack_folder: Path, *arguments: object) -> Result:
    return CliRunner().invoke(main, ["inspect", *map(str, (pack_folder, *arguments))])


def keep(folder: Path, code: str = "", machines: Sequence[str] = ()) -> Path:
    """The measurements of :func:`found` in a file, and the pack beside it."""
    (folder / "pack").mkdir()
    (folder / "pack" / FILE_NAME).write_text(pack(HOT).dump())
    backend = CpuBackend(TARGETS[TARGET], folder / "objects")
    records = (
        Record(
            workload=f.state.workload,
            config=choice.to_json(),
            target=TARGET,
            code=code or backend.code,
            machine=name,
            versions=build.versions(),
            status=outcome.status,
            median_us=outcome.median_us,
            spread_us=outcome.spread_us,
            message=outcome.message,
        )
        for f in found()
        for choice, outcome in f.state.outcomes.items()
        for name in machines or [machine.processor()]
    )
    record.append(folder / "r.jsonl", records)
    return folder / "r.jsonl"


@pytest.mark.usefixtures("no_measuring")
def test_kept_measurements_give_the_same_page(tmp_path: Path) -> None:
    records = keep(tmp_path)
    before = records.read_bytes()
    path = tmp_path / "again.html"
    result = inspect(tmp_path / "pack", "--report", path, "--records", records)
    assert result.exit_code == 0, result.output
    assert result.output == f"report: {path}\n"
    assert records.read_bytes() == before
    rows = Page(path.read_text(encoding="utf-8")).rows("All problems")
    assert rows == Page(document(found(), pack(HOT))).rows("All problems")


def test_measurements_of_other_code_do_not_count(tmp_path: Path) -> None:
    records = keep(tmp_path, code="0123456789abcdef")
    result = inspect(tmp_path / "pack", "--report", tmp_path / "a.html", "--records", records)
    assert result.exit_code == 1
    assert "r.jsonl: no measurement of the pack's problems by this version" in result.output
    assert result.output.count("\n") == 1
    assert not (tmp_path / "a.html").exists()


def test_measurements_of_one_other_machine_count(tmp_path: Path) -> None:
    records = keep(tmp_path, machines=["Far CPU"])
    path = tmp_path / "far.html"
    result = inspect(tmp_path / "pack", "--report", path, "--records", records)
    assert result.exit_code == 0, result.output
    page = Page(path.read_text(encoding="utf-8"))
    assert [row["best µs"] for row in page.rows("All problems")] == ["0.50", "10.0"]
    assert "another machine" in page.text


def test_measurements_of_several_other_machines_do_not(tmp_path: Path) -> None:
    records = keep(tmp_path, machines=["Far CPU", "Other CPU"])
    result = inspect(tmp_path / "pack", "--report", tmp_path / "a.html", "--records", records)
    assert result.exit_code == 1
    assert f"measurements for {TARGET} of Far CPU; Other CPU, none of them this" in result.output
