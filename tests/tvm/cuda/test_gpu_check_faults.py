"""The GPU check where something goes wrong: kernels, libraries, images, time."""

from __future__ import annotations

import shutil

import pytest

from tests.tvm.cuda.conftest import NEW
from tests.tvm.cuda.gpu_bundle import (
    OURS,
    PROBLEMS,
    SCORES,
    VALUES,
    faulty,
    run,
)


def test_wrong_kernel_is_caught_and_not_timed(made, tmp_path):
    ran = run(made, tmp_path, FAKE_DRIVER_FAULTS=faulty(made, "skip", VALUES))
    assert ran.status == 1
    (fault,) = ran.faults()
    assert "90 of 90 results wrong" in fault
    assert "WRONG" in ran.output
    timed = {record["symbol"] for record in ran.results["measurements"]}
    assert timed == {made.symbols[0], made.symbols[2]}
    assert any("its kernel is wrong" in reason for reason in ran.results["skipped_parts"].values())


def test_kernel_that_is_wrong_when_it_is_timed_has_no_time(made, tmp_path):
    """Though it was right when it was checked: what is there from before does not count."""
    ran = run(made, tmp_path, FAKE_DRIVER_FAULTS=faulty(made, "stale", VALUES))
    assert set(ran.results["checks"].values()) == {""}
    by_symbol = {record["symbol"]: record for record in ran.results["measurements"]}
    stale = by_symbol.pop(made.symbols[1])
    assert stale["measurements"] == []
    assert set(stale["faults"]) == set(OURS)
    assert all("results wrong" in fault for fault in stale["faults"].values())
    assert all(record["measurements"] for record in by_symbol.values())
    assert "no time of ours fused for [3,2] 5x7" in ran.output


@pytest.mark.parametrize(
    ("fault", "words"),
    [("illegal", "failed with 700"), ("abort", "ended the process that ran it (signal 6)")],
)
def test_rest_goes_on_after_a_kernel_that_ends_the_process(made, tmp_path, fault, words):
    ran = run(made, tmp_path, "--check-only", FAKE_DRIVER_FAULTS=faulty(made, fault, VALUES))
    assert ran.status == 1
    assert len(ran.results["checks"]) == len(PROBLEMS)
    (found,) = ran.faults()
    assert words in found
    assert ran.results["parts"]["check"]["workers"] == 2
    assert ran.results["parts"]["check"]["not_reached"] == []


def test_kernel_that_hangs_is_stopped(made, tmp_path):
    ran = run(
        made,
        tmp_path,
        *("--check-only", "--item-seconds", "2"),
        FAKE_DRIVER_FAULTS=faulty(made, "hang", SCORES),
    )
    assert ran.status == 1
    assert ran.faults() == ["did not end within 2 s"]
    assert len(ran.results["checks"]) == len(PROBLEMS)


def test_what_the_deadline_leaves_over_is_named(made, tmp_path):
    ran = run(made, tmp_path, "--seconds", "0.01")
    assert ran.status == 0
    assert ran.results["checks"] == {}
    left = ran.results["parts"]["check"]["not_reached"]
    assert left == [f"{NEW.name}/{symbol}" for symbol in made.symbols]
    assert ran.results["parts"]["ours"]["not_reached"] == ["0", "1", "2"]
    assert "0 right, 0 wrong, 4 not reached" in ran.output
    for symbol in made.symbols:
        assert f"not reached: {NEW.name}/{symbol}" in ran.output


def test_damaged_image_is_a_fault_of_its_kernels(made, tmp_path):
    bundle = tmp_path / "damaged"
    shutil.copytree(made.bundle, bundle)
    for image in (bundle / "pack").glob("*sm-90*.so"):
        content = bytearray(image.read_bytes())
        content[-1] ^= 1
        image.write_bytes(content)
    ran = run(made, tmp_path, "--check-only", bundle=bundle)
    assert ran.status == 1
    assert len(ran.faults()) == len(PROBLEMS)
    assert all("checksum" in fault for fault in ran.faults())


@pytest.mark.parametrize(
    ("library", "words"),
    [
        ("libcuda.so.1", "no CUDA driver"),
        ("libcudart.so.13", "no libcudart.so.13, which TVM's CUDA runtime needs"),
    ],
)
def test_missing_library_is_one_line(made, tmp_path, library, words):
    for name in {"libcuda.so.1", "libcudart.so.13"} - {library}:
        shutil.copy(made.folder / name, tmp_path)
    (tmp_path / library).write_text("no library")
    ran = run(made, tmp_path, LD_LIBRARY_PATH=str(tmp_path))
    assert (ran.status, ran.results) == (1, {})
    (line,) = ran.errors.splitlines()
    assert words in line


def test_cuda_runtime_is_found_in_python_packages(made, tmp_path):
    """Where PyTorch brings it, which the loader does not know of."""
    driver = tmp_path / "driver"
    driver.mkdir()
    shutil.copy(made.folder / "libcuda.so.1", driver)
    (driver / "libcudart.so.13").write_text("no library")
    package = tmp_path / "packages" / "nvidia" / "cu13" / "lib"
    package.mkdir(parents=True)
    shutil.copy(made.folder / "libcudart.so.13", package)
    ran = run(
        made,
        tmp_path,
        "--check-only",
        LD_LIBRARY_PATH=str(driver),
        PYTHONPATH=str(tmp_path / "packages"),
    )
    assert ran.status == 0, ran.errors


def test_gpu_that_runs_no_image(made, tmp_path):
    ran = run(made, tmp_path, FAKE_DRIVER_CAPABILITY="75")
    assert ran.status == 1
    assert "compute capability 7.5 and runs none of cuda:sm_80, cuda:sm_90" in ran.errors
