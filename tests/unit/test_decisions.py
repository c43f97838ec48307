"""What serves a product of a tuned pack, and `tf-tvm-ops inspect --decisions`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tf_tvm_ops.kernels.manifest import (
    FILE_NAME,
    Duel,
    ImageEntry,
    KernelEntry,
    Manifest,
    Timing,
    load,
)
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.tools.cli import main
from tf_tvm_ops.tools.decisions import KERNEL, STOCK_FASTER, decision

PROBLEM = Problem(17, 19, 64, "k", "k")
WON, LOST = Duel(1.0, 2.0, 0.5), Duel(2.0, 1.0, 0.1)
TOO_CLOSE = Duel(1.0, 1.2, 0.3)


def timing(
    onednn: Duel | None,
    eigen: Duel | None = WON,
    *,
    matrices: int = 8,
    epilogue: str = "none",
    cache: str = "hot",
) -> Timing:
    return Timing(matrices, 2, cache, epilogue, onednn, eigen)


def kernel(*timings: Timing, problem: Problem = PROBLEM) -> KernelEntry:
    return KernelEntry(problem.stem(), problem, {"rule": "cpu_dot"}, 0, timings=timings)


# As the C++ side decides: tests/tf/test_gate.py has the same cases.
@pytest.mark.parametrize(
    ("timings", "onednn", "eigen"),
    [
        ([], True, True),
        ([timing(WON)], True, True),
        ([timing(LOST)], False, True),
        ([timing(WON, LOST)], True, False),
        ([timing(TOO_CLOSE)], False, True),
        # What is won in one setting is served unless it is lost in another.
        ([timing(WON), timing(TOO_CLOSE, cache="cold")], True, True),
        ([timing(TOO_CLOSE), timing(WON, cache="cold")], True, True),
        ([timing(TOO_CLOSE), timing(TOO_CLOSE, cache="cold")], False, True),
        ([timing(TOO_CLOSE), timing(LOST, cache="cold")], False, True),
        # A win with operands in cache does not make up for a loss without.
        ([timing(WON), timing(LOST, cache="cold")], False, True),
        ([timing(LOST, cache="cold"), timing(WON)], False, True),
        # Where stock ended the process the kernel serves; the other half counts all the same.
        ([timing(None)], True, True),
        ([timing(None, LOST)], True, False),
        ([timing(LOST, None)], False, True),
        ([timing(LOST), timing(None, cache="cold")], True, True),
        ([timing(None, cache="cold"), timing(LOST)], True, True),
    ],
)
def test_kernel_serves_where_it_won(timings: list[Timing], onednn: bool, eigen: bool) -> None:
    entry = kernel(*timings)
    assert entry.expected_to_win(8, "none", onednn=True) == onednn
    assert entry.expected_to_win(8, "none", onednn=False) == eigen


def test_fusing_counts() -> None:
    entry = kernel(timing(LOST), timing(WON, epilogue="add"), timing(LOST, epilogue="transpose"))
    serves = [entry.expected_to_win(8, e, onednn=True) for e in ("none", "add", "transpose")]
    assert serves == [False, True, False]
    # What is won bare is won fused, unless it was measured fused.
    bare = kernel(timing(WON), timing(LOST, epilogue="add"))
    serves = [bare.expected_to_win(8, e, onednn=True) for e in ("none", "add", "transpose")]
    assert serves == [True, False, True]


def test_serving_everywhere() -> None:
    assert kernel(timing(WON), timing(TOO_CLOSE, cache="cold")).serves_everywhere
    assert not kernel(timing(WON), timing(LOST, matrices=512)).serves_everywhere
    assert not kernel(timing(WON), timing(WON, LOST, epilogue="add")).serves_everywhere


def test_nearest_number_of_matrices_decides() -> None:
    entry = kernel(timing(LOST, matrices=8), timing(WON, matrices=512))
    found = [entry.expected_to_win(b, "none", onednn=True) for b in (1, 8, 63, 65, 512, 4096)]
    assert found == [False] * 3 + [True] * 3


def test_decision_names_the_dispatchers_reason() -> None:
    entry = kernel(timing(LOST))
    assert decision(entry, entry.timings[0], onednn=True) == STOCK_FASTER
    assert decision(entry, entry.timings[0], onednn=False) == KERNEL
    words = Path(__file__).parents[2] / "cc" / "dispatch" / "product.cc"
    assert f'return "{STOCK_FASTER}"' in words.read_text()


def write(folder: Path, *kernels: KernelEntry) -> Path:
    image = ImageEntry("cpu:x86-64-v3", "cpu-x86-64-v3-0123456789abcdef.so", 1, "0" * 64, kernels)
    (folder / FILE_NAME).write_text(Manifest(2, {"tests": "1"}, (image,)).dump())
    return folder


def decisions(pack: Path) -> tuple[int, str]:
    # As into a file: whoever runs tests beside each other sets the width of a narrow terminal.
    runner = CliRunner(env={"COLUMNS": None})
    result = runner.invoke(main, ["inspect", str(pack), "--decisions"])
    return result.exit_code, result.output


def test_a_row_for_each_measurement(tmp_path: Path) -> None:
    lost = Duel(12.34, 10.01, 0.25)
    generic = KernelEntry(
        "generic", Problem(None, None, None), {"rule": "cpu_generic"}, 0, model={"kernel": [1.0]}
    )
    pack = write(
        tmp_path,
        kernel(timing(lost, Duel(123.4, 567.8, 1.0), matrices=512), timing(WON, epilogue="add")),
        kernel(problem=Problem(3, 4, 5)),
        generic,
    )
    code, output = decisions(pack)
    assert code == 0, output
    lines = [line.split() for line in output.splitlines() if "17x19x64" in line]
    assert lines == [
        [
            *("f32", "17x19x64", "kk", "none", "512", "2", "hot"),
            *("12.3", "10.0", "±0.25", "stock_faster", "123", "568", "±1.00", "kernel"),
        ],
        [
            *("f32", "17x19x64", "kk", "add", "8", "2", "hot"),
            *("1.00", "2.00", "±0.50", "kernel", "1.00", "2.00", "±0.50", "kernel"),
        ],
    ]
    assert "Kernels of cpu:x86-64-v3 that were not measured, and serve: 1." in output
    assert re.search(r"faster than\s+stock: 1\s+have one", output)


def test_stock_that_failed_is_told(tmp_path: Path) -> None:
    code, output = decisions(write(tmp_path, kernel(timing(None, LOST))))
    assert code == 0, output
    (line,) = (line.split() for line in output.splitlines() if "17x19x64" in line)
    assert line[-6:] == ["failed", "kernel", "2.00", "1.00", "±0.10", "stock_faster"]


def test_halves_of_a_timing_are_kept_in_a_manifest(tmp_path: Path) -> None:
    timings = (timing(None), timing(WON, None), timing(LOST))
    (image,) = load(write(tmp_path, kernel(*timings))).images
    assert image.kernels[0].timings == timings
    assert [len(t.duels) for t in timings] == [1, 1, 2]


def test_a_pack_that_was_not_tuned_is_one_line(tmp_path: Path) -> None:
    code, output = decisions(write(tmp_path, kernel()))
    assert code == 1
    assert output.startswith("Error: no kernel of the pack was measured against stock")
    assert output.count("\n") == 1


def test_needs_neither_tvm_nor_tensorflow(tmp_path: Path) -> None:
    pack = write(tmp_path, kernel(timing(WON)))
    program = (
        "import sys; from tf_tvm_ops.tools.cli import main;"
        "main(['inspect', sys.argv[1], '--decisions'], standalone_mode=False);"
        "print([m for m in ('tvm', 'tensorflow', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, pack], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("[]\n")
