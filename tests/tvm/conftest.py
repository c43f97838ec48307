"""Fixtures of the tests that need TVM: compiling single kernels and checking them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tf_tvm_ops.kernels import build
from tf_tvm_ops.kernels.build import Kernel
from tf_tvm_ops.kernels.problem import DTYPES, Problem
from tf_tvm_ops.kernels.schedules import Choice, Rule
from tf_tvm_ops.kernels.targets import TARGETS, Target
from tf_tvm_ops.kernels.verify import verify_image

RUNNABLE = [target for target in TARGETS.values() if target.runs_here()]


@pytest.fixture(params=RUNNABLE, ids=str)
def target(request: pytest.FixtureRequest) -> Target:
    """Each target that this machine can run."""
    return request.param


@pytest.fixture
def faults(tmp_path: Path) -> Callable[..., list[str]]:
    """``faults(problem, choice, target, ...)``: compile kernels to an image and check them."""

    count = itertools.count()

    def check(kernels: list[tuple[Problem, Choice, Target]]) -> list[str]:
        made = [Kernel(*kernel) for kernel in kernels]
        objects = [tmp_path / f"{i}.o" for i in range(len(made))]
        for kernel, path in zip(made, objects):
            build.compile_object(kernel, path)
        # A name of its own: an image loaded before under the same path would be found again.
        image = tmp_path / f"image{next(count)}.so"
        build.link_image(objects, image)
        return verify_image(image, [(k.symbol, k.problem, k.workspace_bytes) for k in made])

    return check


@pytest.fixture
def check_rule(
    faults: Callable[..., list[str]], target: Target
) -> Callable[[Rule, list[Problem]], None]:
    """``check_rule(rule, problems)``: the rule's own choice and its largest tile are right.

    For float32, and with the last three problems for the other dtypes.
    """

    def check(rule: Rule, problems: list[Problem]) -> None:
        kernels = {}
        others = [
            dataclasses.replace(problem, dtype=dtype)
            for dtype in DTYPES[1:]
            for problem in problems[-3:]
        ]
        for problem in [*problems, *others]:
            assert rule.refusal(problem, target) is None, problem
            *_, last = rule.space(problem, target)
            for config in (rule.propose(problem, target), last):
                choice = Choice(rule, config)
                kernels[choice.symbol(problem)] = (problem, choice, target)
        found = faults(list(kernels.values()))
        wrong = {name: fault for name, fault in zip(kernels, found) if fault}
        assert not wrong

    return check
