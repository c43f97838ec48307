"""`tf-tvm-ops analyze`: figures worked out by hand from problem, config and resources."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tf_tvm_ops.kernels.cuda.cost import LIMITS, resident_blocks
from tf_tvm_ops.kernels.cuda.gpus import GPUS, parse_gpu, typical_gpu
from tf_tvm_ops.kernels.cuda.targets import CUDA_TARGETS
from tf_tvm_ops.kernels.manifest import FILE_NAME, ImageEntry, KernelEntry, Manifest
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.tools.analyze.model import Row
from tf_tvm_ops.tools.cli import main


def kernel(problem: Problem, registers: int, shared_bytes: int, **config: Any) -> KernelEntry:
    resources = {"registers": registers, "shared_bytes": shared_bytes}
    symbol = f"{problem.stem()}_{config['rule']}"
    return KernelEntry(symbol, problem, config, 0, resources)


SMALL = kernel(
    Problem(17, 17, 64, "k", "k"),
    registers=56,
    shared_bytes=9824,
    rule="cuda_small",
    matrices=1,
    tile_m=2,
    tile_n=3,
    tile_k=64,
    vector_width=4,
    copies_async=1,
)
VECTOR = kernel(
    Problem(1, 17, 128, "k", "k"),
    registers=28,
    shared_bytes=0,
    rule="cuda_vector",
    num_threads_x=2,
    num_threads_y=16,
    columns=1,
    unroll=2,
    matrices=1,
)
MMA = kernel(
    Problem(17, 17, 64, "k", "k", "bfloat16"),
    registers=40,
    shared_bytes=6912,
    rule="cuda_mma",
    warps_m=1,
    warps_n=2,
    tile_m=1,
    tile_n=2,
    tile_k=64,
)
TILE = kernel(
    Problem(512, 512, 64, "k", "k"),
    registers=163,
    shared_bytes=30720,
    rule="cuda_tile",
    num_threads_y=8,
    num_threads_x=16,
    tile_m=8,
    tile_n=8,
    tile_k=16,
    vector_width=4,
    copies_async=1,
)
THREAD = kernel(
    Problem(5, 300, 7),
    registers=32,
    shared_bytes=0,
    rule="cuda_thread",
    num_threads_y=1,
    num_threads_x=64,
    unroll=8,
)
GENERIC = kernel(
    Problem(None, None, None),
    registers=128,
    shared_bytes=18432,
    rule="cuda_generic",
    tile=64,
    tile_k=16,
    vector_width=4,
    copies_async=1,
)
KERNELS = (SMALL, VECTOR, MMA, TILE, THREAD)


def row(entry: KernelEntry, gpu: str = "H100", batch: int = 512) -> Row:
    return Row("cuda:sm_90", GPUS[gpu], entry, batch)


def with_knobs(entry: KernelEntry, **knobs: Any) -> KernelEntry:
    return replace(entry, config={**entry.config, **knobs})


@pytest.mark.parametrize(
    ("entry", "needed", "executed"),
    [
        # 9 x 6 threads of 2 x 3 sums cover 18 x 18.
        (SMALL, 2 * 17 * 17 * 64, 2 * 18 * 18 * 64),
        # 2 columns a block: 9 blocks for 17; 16 lanes of 4 elements walk 128 in two steps.
        (VECTOR, 2 * 17 * 128, 2 * 18 * 128),
        # 16 x 32 a block: two blocks.
        (MMA, 2 * 17 * 17 * 64, 2 * 32 * 32 * 64),
        (TILE, 2 * 512 * 512 * 64, 2 * 512 * 512 * 64),
        # 64 columns a block: 320 for 300.
        (THREAD, 2 * 5 * 300 * 7, 2 * 5 * 320 * 7),
    ],
    ids=lambda value: value.symbol if isinstance(value, KernelEntry) else "",
)
def test_operations_needed_and_executed(entry: KernelEntry, needed: int, executed: int) -> None:
    assert row(entry, batch=1).flops_needed == needed
    assert row(entry, batch=1).flops_executed == executed
    assert row(entry, batch=512).flops_executed == 512 * executed


def test_steps_of_k_are_padded() -> None:
    entry = replace(with_knobs(SMALL, tile_k=16), problem=Problem(17, 17, 50, "k", "k"))
    assert row(entry, batch=1).flops_executed == 2 * 18 * 18 * 64
    entry = replace(VECTOR, problem=Problem(1, 17, 100, "k", "k"))
    assert row(entry, batch=1).flops_executed == 2 * 18 * 128
    # 66 is no multiple of 4: elements one by one, 5 steps of 16.
    entry = replace(VECTOR, problem=Problem(1, 17, 66, "k", "k"))
    assert row(entry, batch=1).flops_executed == 2 * 18 * 80


def test_a_block_of_several_matrices_is_padded() -> None:
    entry = with_knobs(SMALL, matrices=4)
    assert row(entry, batch=10).blocks == 3
    assert row(entry, batch=10).flops_executed == 12 * 2 * 18 * 18 * 64
    assert row(entry, batch=10).bytes_moved == 10 * (2 * 17 * 64 + 17 * 17) * 4


@pytest.mark.parametrize(
    ("entry", "needed", "moved"),
    [
        (SMALL, (2 * 17 * 64 + 17 * 17) * 4, (2 * 17 * 64 + 17 * 17) * 4),
        # The row is read by each of 9 blocks.
        (VECTOR, (128 + 17 * 128 + 17) * 4, (9 * 128 + 17 * 128 + 17) * 4),
        # rhs is read by two blocks along M; elements of two bytes.
        (MMA, (2 * 17 * 64 + 17 * 17) * 2, (17 * 64 + 2 * 17 * 64 + 17 * 17) * 2),
        # Tiles of 64 x 128: lhs is read by 4 blocks, rhs by 8.
        (TILE, (2 * 512 * 64 + 512 * 512) * 4, (12 * 512 * 64 + 512 * 512) * 4),
        (THREAD, (5 * 7 + 7 * 300 + 1500) * 4, (5 * 5 * 7 + 5 * 7 * 300 + 1500) * 4),
    ],
    ids=lambda value: value.symbol if isinstance(value, KernelEntry) else "",
)
def test_bytes_needed_and_moved(entry: KernelEntry, needed: int, moved: int) -> None:
    assert row(entry, batch=3).bytes_needed == 3 * needed
    assert row(entry, batch=3).bytes_moved == 3 * moved
    assert row(entry).intensity == row(entry, batch=1).flops_needed / needed


def test_tiles_are_shared_where_the_cache_holds_the_matrices_at_work() -> None:
    # 3 blocks on each of 132 multiprocessors, 32 to a matrix of 1.3 MB: 16 MB.
    assert row(TILE).memory_bytes == row(TILE).bytes_needed
    # 3 on each of 80: 10 MB, in a cache of 6.
    assert row(TILE, "V100").memory_bytes == row(TILE, "V100").bytes_moved
    assert row(TILE, "V100", batch=4).memory_bytes == row(TILE, "V100", batch=4).bytes_needed


@pytest.mark.parametrize(
    ("entry", "gpu", "blocks", "occupancy"),
    [
        # Registers: 56 x 32 to a warp, 36 warps, two to a block.
        (SMALL, "H100", 18, 36 / 64),
        # Shared memory: 9824 + 1024 in units of 128 are 10880, of 164 KiB and of 100 KiB.
        (SMALL, "A100", 15, 30 / 64),
        (SMALL, "RTX-3090", 9, 18 / 48),
        # Nothing reserved, units of 256: 9984 of 64 KiB.
        (SMALL, "T4", 6, 12 / 32),
        # Blocks of one warp, of which there may be 32, 24 or 16.
        (VECTOR, "H100", 32, 32 / 64),
        (VECTOR, "L4", 24, 24 / 48),
        (VECTOR, "RTX-3090", 16, 16 / 48),
        # 163 registers are 168, in units of 256 to a warp: 12 warps, four to a block.
        (TILE, "H100", 3, 12 / 64),
        # Threads: 2048 of them in blocks of 64.
        (THREAD, "V100", 32, 64 / 64),
    ],
)
def test_occupancy(entry: KernelEntry, gpu: str, blocks: int, occupancy: float) -> None:
    assert row(entry, gpu).resident_blocks == blocks
    assert row(entry, gpu).occupancy == pytest.approx(occupancy)


def test_registers_and_warps_are_handed_out_in_units() -> None:
    machine = GPUS["H100"].machine
    # 50 registers are 56, 1792 to a warp: 36 warps fit, 9 blocks of four. (Of 1600: 40 warps.)
    assert resident_blocks(machine, 4 * 32, 50, 0) == 9
    # 80 registers: 25 warps fit, of which 24 are used, 4 blocks of five.
    assert resident_blocks(machine, 5 * 32, 80, 0) == 4
    assert resident_blocks(machine, 1024, 255, 0) == 1


def test_bounds_and_time() -> None:
    found = row(SMALL).bounds
    assert found.nanoseconds("memory") == pytest.approx(512 * 9860 / 3350)
    # 4 blocks of 2 warps on the busiest multiprocessor; 384 multiply-adds a thread, 128 a cycle.
    assert found.multiply == pytest.approx(4 * 2 * 384 / 4, rel=0.01)
    # One wave: 512 blocks where 18 x 132 fit.
    assert row(SMALL).waves == pytest.approx(512 / (18 * 132))
    assert found.latency == row(SMALL).work.latency
    assert row(SMALL, batch=18 * 132 + 1).bounds.latency == 2 * row(SMALL).work.latency
    assert found.limit == "memory"
    busy = max(found.load, found.multiply, found.latency)
    assert found.time > found.nanoseconds("memory") > busy / found.gigahertz
    assert found.time < 1.3 * found.nanoseconds("memory")


def test_tensor_cores_count_as_such() -> None:
    # 8 instructions of 2048 multiply-adds in each of 2 warps of ceil(1024 / 108) blocks.
    assert row(MMA, "A100").bounds.multiply == pytest.approx(10 * 2 * 8 * 2048 / 1024, rel=0.01)


def test_double_precision_has_units_of_its_own() -> None:
    single, double = (
        row(replace(THREAD, problem=Problem(5, 300, 7, dtype=dtype)), "T4").bounds.multiply
        for dtype in ("float32", "float64")
    )
    assert double / single == pytest.approx(32, rel=0.02)


def test_tiles_of_a_library() -> None:
    assert row(SMALL, batch=1).vendor_flops(64, 64) == 2 * 64 * 64 * 64
    assert row(SMALL, batch=1).vendor_flops(128, 64) == 2 * 128 * 64 * 64
    assert row(TILE, batch=2).vendor_flops(128, 64) == 2 * row(TILE, batch=1).flops_needed
    # 5 x 300 by tiles of 64 x 128, not of 128 x 64.
    assert row(THREAD, batch=1).vendor_flops(128, 64) == 2 * 64 * 384 * 7


@pytest.mark.parametrize("gpu", GPUS.values(), ids=str)
def test_data_sheets_agree_with_themselves(gpu: Any) -> None:
    # Throughput is lanes x clock: 64 or 128 single-precision lanes a multiprocessor.
    assert gpu.machine.float32_lanes == pytest.approx(
        64 if gpu.capability in (70, 75, 80) else 128, rel=0.01
    )
    assert gpu.tensor_tflops > 1.9 * gpu.float32_tflops
    assert parse_gpu(gpu.name.lower().replace("-", " ")) is gpu


def test_each_target_has_a_gpu_that_runs_it() -> None:
    for target in CUDA_TARGETS.values():
        assert typical_gpu(target).runs(target)
    assert GPUS["L4"].runs(CUDA_TARGETS["cuda:sm_80"])
    assert not GPUS["A100"].runs(CUDA_TARGETS["cuda:sm_86"])
    assert not GPUS["H100"].runs(CUDA_TARGETS["cuda:sm_80"])
    assert GPUS["H100"].runs(CUDA_TARGETS["cuda:compute_80"])
    assert not GPUS["T4"].runs(CUDA_TARGETS["cuda:compute_80"])


def write_pack(folder: Path, images: Mapping[str, tuple[KernelEntry, ...]]) -> Path:
    folder.mkdir(exist_ok=True)
    entries = tuple(ImageEntry(t, "x.so", 1, "0" * 64, kernels) for t, kernels in images.items())
    text = Manifest(2, {"tf_tvm_ops": "0"}, entries).dump()
    (folder / FILE_NAME).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    return write_pack(
        tmp_path / "pack",
        {
            "cpu:x86-64-v3": (),
            "cuda:compute_80": (SMALL,),
            "cuda:sm_80": (SMALL, THREAD),
            "cuda:sm_90": (GENERIC, *KERNELS),
        },
    )


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["analyze", *map(str, arguments)], env={"COLUMNS": "120"})


def test_table(pack: Path) -> None:
    result = run(pack, "--target", "cuda:sm_90", "--gpu", "H200")
    assert result.exit_code == 0, result.output
    assert "cuda:sm_90 on H200, 512 matrices: predicted, not measured" in result.output
    assert "1 generic kernels of cuda:sm_90 are left out" in result.output
    (line,) = re.findall(r"^ *f32 17x17x64 kk .*$", result.output, re.M)
    cells = line.split()
    assert cells[3:11] == ["small", "18.9", "1.12", "14.2", "28.3", "5.05", "1.00", "3.75"]
    assert cells[11] == "56%"
    assert cells[-1] == "memory"


def test_csv(pack: Path, tmp_path: Path) -> None:
    path = tmp_path / "figures.csv"
    result = run(pack, "--batch", 10, "--csv", path)
    assert result.exit_code == 0, result.output
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [(line["target"], line["gpu"]) for line in lines] == [
        ("cuda:compute_80", "A100"),
        *[("cuda:sm_80", "A100")] * 2,
        *[("cuda:sm_90", "H100")] * 5,
    ]
    line = lines[3]
    expected = row(SMALL, batch=10)
    assert line["symbol"] == SMALL.symbol
    assert [line[name] for name in ("dtype", "m", "n", "k", "lhs", "rhs", "batch")] == [
        *("float32", "17", "17", "64", "k", "k", "10")
    ]
    assert int(line["flops_executed"]) == 10 * 2 * 18 * 18 * 64
    assert int(line["flops_tiles_64x64"]) == 10 * 2 * 64**3
    assert int(line["bytes_moved"]) == 10 * 9860
    assert float(line["occupancy"]) == 36 / 64
    assert float(line["predicted_us"]) == pytest.approx(expected.bounds.time / 1e3)
    times = {limit: float(line[f"{limit}_us"]) for limit in LIMITS}
    assert line["limit"] == max(times, key=lambda limit: times[limit])
    assert all("" not in line.values() and None not in line.values() for line in lines)


def test_the_image_that_a_gpu_would_run(pack: Path) -> None:
    assert "cuda:sm_80 on L4" in run(pack, "--gpu", "l4").output
    assert "cuda:compute_80 on B200" in run(pack, "--gpu", "B200").output
    assert run(pack, "--gpu", "B200").output.count("not measured") == 2  # title, last line


def test_plot(pack: Path, tmp_path: Path) -> None:
    path = tmp_path / "roofline.png"
    result = run(pack, "--plot", path)
    assert result.exit_code == 0, result.output
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert content.endswith(b"IEND\xaeB`\x82")
    width, height = (int.from_bytes(content[at : at + 4], "big") for at in (16, 20))
    assert height > width > 500  # three plots, one below the other


def test_plots_need_matplotlib(pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tf_tvm_ops.tools.analyze as package

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "tf_tvm_ops.tools.analyze.plot", raising=False)
    monkeypatch.delattr(package, "plot", raising=False)
    for name in [name for name in sys.modules if name.startswith("matplotlib.")]:
        monkeypatch.delitem(sys.modules, name)
    result = run(pack, "--plot", tmp_path / "a.png")
    assert result.exit_code == 1
    assert "pip install 'tf-tvm-ops[plots]'" in result.output
    assert not (tmp_path / "a.png").exists()


@pytest.mark.parametrize(
    ("images", "arguments", "message"),
    [
        ({"cuda:sm_90": KERNELS}, ["--gpu", "K80"], "unknown GPU 'K80': expected one of V100, T4"),
        ({"cuda:sm_90": KERNELS}, ["--gpu", "A100"], "A100 has compute capability 8.0 and runs"),
        ({"cuda:sm_90": KERNELS}, ["--target", "cuda:sm_80"], "no image for cuda:sm_80"),
        ({"cuda:sm_90": KERNELS}, ["--target", "cpu:x86-64-v3"], "only kernels for GPUs"),
        ({"cuda:sm_90": KERNELS}, ["--plot", "a.pdf"], "expected a name ending in .png"),
        ({"cuda:sm_90": KERNELS}, ["--csv", "no/such/folder.csv"], "cannot be written"),
        ({"cpu:x86-64-v3": ()}, [], "no kernels for GPUs: the pack has cpu:x86-64-v3"),
        ({"cuda:sm_99": KERNELS}, [], "unknown target 'cuda:sm_99'"),
        ({"cuda:sm_90": (GENERIC,)}, [], "only generic kernels"),
        ({"cuda:sm_90": (with_knobs(SMALL, rule="odd"),)}, [], "rule 'odd' of float32 17x17x64"),
        ({"cuda:sm_90": (with_knobs(SMALL, odd=1),)}, [], "unexpected keyword argument 'odd'"),
        ({"cuda:sm_90": (replace(SMALL, resources=None),)}, [], "does not tell its registers"),
    ],
)
def test_errors_take_one_line(
    tmp_path: Path, images: Any, arguments: list[str], message: str
) -> None:
    result = run(write_pack(tmp_path / "pack", images), *arguments)
    assert result.exit_code == 1
    assert message in result.output
    assert result.output.startswith("Error: ")
    assert result.output.count("\n") == 1


def test_needs_neither_tvm_nor_tensorflow(pack: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from tf_tvm_ops.tools.cli import main;"
        "main(['analyze', sys.argv[1]], standalone_mode=False);"
        "print([m for m in ('tvm', 'tensorflow', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, pack], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("[]\n")
