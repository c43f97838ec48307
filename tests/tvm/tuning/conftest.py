"""Fixtures of the tests of tuning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tf_tvm_ops.kernels.pool import Workers
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.schedules import Choice
from tf_tvm_ops.kernels.targets import TARGETS, Target
from tf_tvm_ops.kernels.tuning.backend import CpuBackend
from tf_tvm_ops.kernels.tuning.local import LocalMeasurer
from tf_tvm_ops.kernels.tuning.measurer import Group
from tf_tvm_ops.kernels.tuning.workload import Workload

SMALL = Workload(Problem(3, 5, 7), 4)


@pytest.fixture(scope="session")
def fast_target() -> Target:
    """A target that this machine runs."""
    return next(target for target in TARGETS.values() if target.runs_here())


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Object files, shared by the tests: what is compiled is not what they are about."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    """One compiling process for all."""
    with Workers(1, deadline=60.0) as workers:
        yield workers


@pytest.fixture(scope="module")
def local() -> Iterator[LocalMeasurer]:
    """Patient, for a machine that others use too."""
    with LocalMeasurer(deadline=60.0) as measurer:
        yield measurer


@pytest.fixture
def impatient() -> Iterator[LocalMeasurer]:
    """For candidates that hang."""
    with LocalMeasurer(deadline=3.0) as measurer:
        yield measurer


@pytest.fixture
def make_group(
    tmp_path: Path, workers: Workers
) -> Callable[[CpuBackend, Workload, list[Choice]], Group]:
    """``make_group(backend, workload, choices)``: compiled, linked, ready to be measured."""

    def make(backend: CpuBackend, workload: Workload, choices: list[Choice]) -> Group:
        compiled = [(workload.problem, choice) for choice in choices]
        assert not [fault for _, fault in backend.compile(workers, compiled) if fault]
        image = tmp_path / f"{len(list(tmp_path.iterdir()))}.so"
        backend.link(compiled, image)
        trials = tuple(backend.trial(candidate) for candidate in compiled)
        return Group(str(image), workload, trials, samples=3)

    return make
