"""Which images a GPU can run, and packs with images for GPUs where there is none."""

from __future__ import annotations

import re
import subprocess
import textwrap
from pathlib import Path

import pytest

from tf_tvm_ops import _native
from tf_tvm_ops.kernels.cuda.targets import CUDA_TARGETS

from .fake_packs import GENERIC, V3, write_pack
from .test_dispatcher import run_python

SM_90 = "cuda:sm_90"
PTX = "cuda:compute_80"


@pytest.mark.parametrize(
    ("capability", "targets"),
    [
        ((0, 0), []),  # not known
        ((6, 1), []),
        ((7, 0), ["sm_70"]),
        ((7, 2), ["sm_70"]),
        ((7, 5), ["sm_75", "sm_70"]),
        ((8, 0), ["sm_80", "compute_80"]),
        ((8, 6), ["sm_86", "sm_80", "compute_80"]),
        ((8, 7), ["sm_86", "sm_80", "compute_80"]),
        ((8, 9), ["sm_89", "sm_86", "sm_80", "compute_80"]),
        ((9, 0), ["sm_90", "compute_80"]),
        ((10, 0), ["sm_100", "compute_80"]),
        ((10, 3), ["sm_100", "compute_80"]),
        ((11, 0), ["compute_80"]),
        ((12, 0), ["sm_120", "compute_80"]),
        ((12, 1), ["sm_120", "compute_80"]),
        ((13, 0), ["compute_80"]),
    ],
    ids=str,
)
def test_targets_of_a_gpu(capability: tuple[int, int], targets: list[str]) -> None:
    assert _native.cuda_targets(capability) == [f"cuda:{target}" for target in targets]


def test_every_target_of_the_generator_is_known() -> None:
    known = {
        target
        for major in range(20)
        for minor in range(10)
        for target in _native.cuda_targets((major, minor))
    }
    assert known == set(CUDA_TARGETS)


class TestWithoutADriver:
    """Also where there is one: what the loader finds first is no library."""

    @staticmethod
    def run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
        hidden = folder / "hidden"
        hidden.mkdir()
        (hidden / "libcuda.so.1").touch()
        prelude = "from tf_tvm_ops import _native\nassert not _native.has_cuda_driver()\n"
        return run_python(prelude + textwrap.dedent(code), LD_LIBRARY_PATH=str(hidden))

    def test_the_images_for_cpus_of_a_mixed_pack_are_used(self, tmp_path: Path) -> None:
        pack = write_pack(tmp_path / "pack", {V3: GENERIC, SM_90: GENERIC})
        code = f"""
        dispatcher = _native.Dispatcher()
        info = dispatcher.load_pack({str(pack)!r})
        print(info.targets, info.ignored)
        print(dispatcher.find(None, None, None) is not None)
        print(dispatcher.find(None, None, None, gpu=_native.Gpu((9, 0))))
        """
        done = self.run(tmp_path, code)
        ignored = f"{SM_90}: this machine has no NVIDIA driver (libcuda.so.1)"
        assert done.stdout.splitlines() == [f"{[V3]} {[ignored]}", "True", "None"], done.stderr

    def test_a_pack_for_gpus_only_is_refused(self, tmp_path: Path) -> None:
        pack = write_pack(tmp_path / "pack", {SM_90: GENERIC, PTX: GENERIC})
        done = self.run(tmp_path, f"_native.Dispatcher().load_pack({str(pack)!r})")
        last = done.stderr.strip().splitlines()[-1]
        assert re.search(r"ValueError: .*none of its images .*sm_90: this machine has no", last)

    def test_what_is_missing_is_named(self, tmp_path: Path) -> None:
        code = """
        first, second = _native.cuda_problem(), _native.cuda_problem()
        assert first == second
        print(first)
        """
        done = self.run(tmp_path, code)
        assert re.search(r"libcuda\.so\.1: ", done.stdout), done.stderr
        assert done.stderr.count("kernels for GPUs are not used") <= 1
