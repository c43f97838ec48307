"""Compiling candidates for GPUs. No GPU is needed for it; measuring them needs one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from .. import build as cpu_build
from ..cuda import build
from ..cuda.build import CudaKernel
from ..cuda.image import link_image
from ..cuda.targets import CudaTarget
from ..pool import Workers
from ..problem import Problem
from ..schedules.cuda_rule import CudaChoice
from ..schedules.cuda_rules import CUDA_RULES
from .backend import Compiled, code_digest, message
from .measurer import Trial
from .space import Candidate


class CudaBackend:
    """See :class:`.backend.Backend`.

    A candidate that spills registers is a failure: memory that a kernel did not ask for is what
    makes it slow.

    Parameters
    ----------
    target
        What is compiled for.
    cache
        Folder of kernels from earlier runs.
    """

    def __init__(self, target: CudaTarget, cache: Path) -> None:
        cpu_build.prepare_cache(cache)
        self.name = target.name
        self.versions: Mapping[str, str] = build.versions()
        self.code = code_digest(build.versions(), build.sources_digest())
        self._target = target
        self._cache = cache

    def space(self, problem: Problem) -> list[Candidate]:
        """See :class:`.backend.Backend`."""
        found = [
            Candidate(CudaChoice(rule, config), rule.cost(problem, self._target, config))
            for rule in CUDA_RULES
            if rule.refusal(problem, self._target) is None
            for config in rule.space(problem, self._target)
        ]
        return sorted(found, key=lambda candidate: candidate.cost)

    def compile(
        self, workers: Workers, candidates: Sequence[Compiled]
    ) -> Iterator[tuple[Compiled, str]]:
        """See :class:`.backend.Backend`."""
        work = partial(_compile, target=self._target, cache=self._cache)
        for candidate, error in workers.run(work, list(candidates)):
            yield candidate, message(error)

    def link(self, candidates: Sequence[Compiled], image: Path) -> None:
        """See :class:`.backend.Backend`."""
        built = [self._built(candidate) for candidate in candidates]
        modules = [b.module.read_bytes() for b in built]
        link_image([b.lowered.host for b in built], modules, image)

    def trial(self, candidate: Compiled) -> Trial:
        """See :class:`.backend.Backend`."""
        return Trial(CudaKernel(*candidate).symbol)

    def _built(self, candidate: Compiled) -> build.Built:
        return build.build_kernel(CudaKernel(*candidate), self._target, self._cache)


class SpillError(RuntimeError):
    """A candidate that needs more registers than there are."""


def _compile(candidate: tuple[Problem, Any], *, target: CudaTarget, cache: Path) -> None:
    built = build.build_kernel(CudaKernel(*candidate), target, cache)
    if built.resources.spills:
        raise SpillError(f"{built.resources.spill_bytes} bytes of registers spilled")
