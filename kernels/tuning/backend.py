"""Compiling candidates: the same steps for every kind of target."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Protocol

from .. import build
from ..compute import KERNEL_ABI
from ..pool import Workers
from ..problem import Problem
from ..schedules import AnyChoice
from ..targets import Target
from .measurer import Trial
from .space import Candidate, space

Compiled = tuple[Problem, AnyChoice[Any]]


LATE, KILLED = "the compiler did not end in time", "the compiler was killed"
TRANSIENT = frozenset({LATE, KILLED})
"""Faults that may be those of a busy machine: later runs try such candidates again."""


class Backend(Protocol):
    """How candidates for a target become an image.

    Attributes
    ----------
    name
        Of the target.
    code
        Digest of the code generator and its versions.
    versions
        Of what compiles.
    """

    name: str
    code: str
    versions: Mapping[str, str]

    def space(self, problem: Problem) -> list[Candidate]:
        """All candidates, the most promising first; none if no rule applies."""
        ...

    def compile(
        self, workers: Workers, candidates: Sequence[Compiled]
    ) -> Iterator[tuple[Compiled, str]]:
        """Each candidate once it is compiled, and what went wrong, ``""`` if nothing."""
        ...

    def link(self, candidates: Sequence[Compiled], image: Path) -> None:
        """An image of candidates that were compiled."""
        ...

    def trial(self, candidate: Compiled) -> Trial:
        """The candidate in an image."""
        ...


def code_digest(versions: Mapping[str, str], sources: str) -> str:
    """Of what a candidate's code depends on beside itself; ``sources`` is a digest."""
    parts = [KERNEL_ABI, dict(versions), sources]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


class CpuBackend:
    """See :class:`Backend`.

    Parameters
    ----------
    target
        What is compiled for.
    cache
        Folder of object files.
    """

    def __init__(self, target: Target, cache: Path) -> None:
        build.prepare_cache(cache)
        self.name = target.name
        self.versions: Mapping[str, str] = build.versions()
        self.code = code_digest(build.versions(), build.sources_digest())
        self._target = target
        self._cache = cache

    def space(self, problem: Problem) -> list[Candidate]:
        """See :class:`Backend`."""
        if problem.dtype not in self._target.dtypes:
            return []
        try:
            return space(problem, self._target)
        except ValueError:
            return []

    def compile(
        self, workers: Workers, candidates: Sequence[Compiled]
    ) -> Iterator[tuple[Compiled, str]]:
        """See :class:`Backend`."""
        work: dict[tuple[build.Kernel, Path], Compiled] = {}
        for candidate in candidates:
            kernel = self._kernel(candidate)
            path = build.object_path(self._cache, kernel)
            if path.exists():
                yield candidate, ""
            else:
                work[kernel, path] = candidate
        for item, error in workers.run(_compile, list(work)):
            yield work[item], message(error)

    def link(self, candidates: Sequence[Compiled], image: Path) -> None:
        """See :class:`Backend`."""
        paths = []
        for kernel in map(self._kernel, candidates):
            paths.append(build.object_path(self._cache, kernel))
            # Measured by an earlier run, which had another cache.
            if not paths[-1].exists():
                build.compile_object(kernel, paths[-1])
        build.link_image(paths, image)

    def trial(self, candidate: Compiled) -> Trial:
        """See :class:`Backend`."""
        kernel = self._kernel(candidate)
        return Trial(kernel.symbol, kernel.workspace_bytes)

    def _kernel(self, candidate: Compiled) -> build.Kernel:
        return build.Kernel(*candidate, self._target)


def _compile(item: tuple[build.Kernel, Path]) -> None:
    build.compile_object(*item)


def message(error: BaseException | None) -> str:
    """What to note of a candidate that could not be compiled, ``""`` if it could.

    Raises
    ------
    BuildError
        If the cache could not be written, which is no fault of the candidate.
    """
    if error is None:
        return ""
    if isinstance(error, TimeoutError):
        return LATE
    if isinstance(error, BrokenProcessPool):
        return KILLED
    if isinstance(error, OSError):
        raise build.cache_error(error) from error
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"{type(error).__name__}: {lines[-1]}"
