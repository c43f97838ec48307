"""Fixtures of the tests of GPU kernels, which run on the emulator."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import tvm_ffi

from tests.tvm.cuda.gpu_bundle import Made, make_all
from tf_tvm_ops.kernels.cuda import build
from tf_tvm_ops.kernels.cuda.build import CudaKernel
from tf_tvm_ops.kernels.cuda.image import link_image
from tf_tvm_ops.kernels.cuda.targets import CUDA_TARGETS, MAX_SHARED_BYTES
from tf_tvm_ops.kernels.cuda.tile_shape import SHARED_ALIGNMENT
from tf_tvm_ops.kernels.emulate.build import DeviceCode, compile_emulated
from tf_tvm_ops.kernels.emulate.check import Candidate, check
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.schedules.cuda_rule import CudaChoice, CudaRule
from tf_tvm_ops.kernels.schedules.rule import Config

OLD, NEW = CUDA_TARGETS["cuda:sm_75"], CUDA_TARGETS["cuda:sm_90"]


def candidate(problem: Problem, rule: CudaRule, config: Config) -> Candidate:
    """A kernel as the emulator takes it."""
    kernel = CudaKernel(problem, CudaChoice(rule, config))
    lowered = build.lower(kernel)
    return Candidate(kernel.symbol, problem, lowered.cuda, lowered.host)


def edited(given: Candidate, **replacements: str) -> Candidate:
    """The kernel with lines of its code replaced."""
    cuda = given.cuda
    for old, new in replacements.items():
        assert old in cuda, f"{old!r} is no part of the kernel"
        cuda = cuda.replace(old, new)
    return dataclasses.replace(given, cuda=cuda)


def emulate(candidates: Sequence[Candidate], *, sanitize: bool = True) -> dict[str, str]:
    """What is wrong with each kernel that has a fault."""
    found = check(candidates, sanitize=sanitize)
    return {c.symbol: fault for c, fault in zip(candidates, found) if fault}


def load(given: Candidate, folder: Path) -> Callable[..., None]:
    """The kernel's launching function, in this process, running on the emulator."""
    host, device = folder / f"{given.symbol}.o", folder / f"{given.symbol}_device.so"
    host.write_bytes(given.host)
    link_image([host], [], folder / f"{given.symbol}.so")
    compile_emulated([DeviceCode(f"{given.symbol}_kernel", given.cuda)], device, sanitize=False)
    module = tvm_ffi.load_module(str(folder / f"{given.symbol}.so"))
    module.import_module(tvm_ffi.load_module(str(device)))
    return module.get_function(given.symbol)


def call(function, lhs, rhs, out, *, total=1, strides, extents=()):
    """Multiply; operands are addresses, strides those of batch, head and row of each."""
    function(
        *(ctypes.c_void_p(address) for address in (lhs, rhs, None, out, None)),
        *(0, total, 1),
        *strides["lhs"],
        *strides["rhs"],
        *(0, 0, 0, 0),
        *strides["out"],
        1.0,
        *extents,
    )


@pytest.fixture
def check_rule(tmp_path: Path) -> Callable[..., None]:
    """``check_rule(rule, problems)``: configs of a rule compute what they should.

    The best one of an old and of a new architecture, and the last one of the new one, on the
    emulator with AddressSanitizer. The best ones compile to machine code.
    """

    def check(rule: CudaRule, problems: Sequence[Problem]) -> None:
        kernels = {}
        for problem in problems:
            for target in (OLD, NEW):
                if rule.refusal(problem, target) is not None:
                    continue
                space = list(rule.space(problem, target))
                assert all(rule.shared_bytes(problem, c) <= MAX_SHARED_BYTES for c in space)
                best = min(space, key=lambda c: rule.cost(problem, target, c))
                built = build.build_kernel(
                    CudaKernel(problem, CudaChoice(rule, best)), target, tmp_path
                )
                # But for the gap behind the last array.
                gap = rule.shared_bytes(problem, best) - built.resources.shared_bytes
                assert 0 <= gap < SHARED_ALIGNMENT, problem
                for config in (best, *(space[-1:] if target is NEW else ())):
                    given = candidate(problem, rule, config)
                    kernels[given.symbol] = given
        assert kernels
        assert emulate(list(kernels.values())) == {}

    return check


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A bundle, and what runs it without a GPU."""
    return make_all(tmp_path_factory.mktemp("gpu"))
