"""Which images a GPU can run, and packs with images for GPUs where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tf_tvm_ops import _native
from tf_tvm_ops.kernels.cuda.targets import CUDA_TARGETS

from .fake_packs import GENERIC, V3, write_pack

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


@pytest.fixture
def no_driver() -> None:
    if _native.has_cuda_driver():
        pytest.skip("this machine has NVIDIA's driver, and what is asked is what happens without")


@pytest.mark.usefixtures("no_driver")
class TestWithoutADriver:
    def test_the_images_for_cpus_of_a_mixed_pack_are_used(self, tmp_path: Path) -> None:
        dispatcher = _native.Dispatcher()
        info = dispatcher.load_pack(write_pack(tmp_path, {V3: GENERIC, SM_90: GENERIC}))
        assert info.targets == [V3]
        assert info.ignored == [f"{SM_90}: this machine has no NVIDIA driver (libcuda.so.1)"]
        assert dispatcher.find(None, None, None) is not None
        assert dispatcher.find(None, None, None, gpu=_native.Gpu((9, 0))) is None

    def test_a_pack_for_gpus_only_is_refused(self, tmp_path: Path) -> None:
        pack = write_pack(tmp_path, {SM_90: GENERIC, PTX: GENERIC})
        with pytest.raises(ValueError, match=r"none of its images .*sm_90: this machine has no"):
            _native.Dispatcher().load_pack(pack)

    def test_what_is_missing_is_named(self, capfd: pytest.CaptureFixture[str]) -> None:
        first, second = _native.cuda_problem(), _native.cuda_problem()
        assert first == second
        assert "libcuda.so.1: cannot open shared object file" in first
        assert capfd.readouterr().err.count("kernels for GPUs are not used") <= 1
