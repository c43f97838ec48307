"""The images of GPU architectures: choose, compile, check on the emulator, link."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ..build import BuildError
from ..emulate.check import Candidate, check
from ..manifest import EMULATED, ImageEntry, KernelEntry, file_sha256, image_name
from ..problem import Problem
from ..schedules.cuda_rule import CudaChoice
from . import build
from .build import Built, CudaKernel, Lowered
from .image import link_image
from .targets import CudaTarget

Report = Callable[[str, int, int], None]

S = TypeVar("S")
T = TypeVar("T")

_COMPILE_CHUNK = 8
_CHECK_CHUNK = 48  # kernels to an emulator: its headers are compiled once for all of them
_CHECK_WORK = 1 << 25  # multiply-adds of them, so that a few large ones do not keep all waiting


@dataclass(frozen=True)
class Images:
    """What :func:`make_images` did.

    Attributes
    ----------
    entries
        One for each target.
    files
        Where each entry's file lies now.
    compiled, reused
        Kernels made, and taken from the cache.
    rejected
        A line for each kernel that did not match the oracle.
    """

    entries: tuple[ImageEntry, ...]
    files: dict[str, Path]
    compiled: int
    reused: int
    rejected: tuple[str, ...]


def make_images(
    pool: Executor,
    problems: Sequence[Problem],
    targets: Sequence[CudaTarget],
    choices: Mapping[str, Mapping[Problem, CudaChoice]],
    cache: Path,
    folder: Path,
    report: Report,
) -> Images:
    """Compile, check and link a kernel for every problem and target.

    Parameters
    ----------
    pool
        Processes that compile and check.
    problems
        What to compute.
    targets
        Where.
    choices
        Rules and configs measured to be fastest, by name of target and problem.
    cache
        Folder of kernels from earlier runs.
    folder
        Where the images are written.
    report
        Told of progress: step, number done, number in all.

    Raises
    ------
    CompilerError, BuildError
        If a compiler is missing or fails.
    """
    if not targets:
        return Images((), {}, 0, 0, ())
    # A problem's targets follow each other: what they share is made once.
    wanted = [
        (problem, target, choices.get(target.name, {}).get(problem))
        for problem in problems
        for target in targets
    ]
    size = len(targets) * max(1, _COMPILE_CHUNK // len(targets))
    chunks = [wanted[start : start + size] for start in range(0, len(wanted), size)]
    built = _in_chunks(pool, _compile_chunk, chunks, cache, "compile", report)
    distinct = sorted(
        {b.kernel.symbol: b.lowered for b in built}.values(),
        key=lambda lowered: lowered.kernel.problem.multiply_adds,
    )
    verdicts = _in_chunks(pool, _check_chunk, _check_chunks(distinct), cache, "emulate", report)
    faults = {lowered.kernel.symbol: fault for lowered, fault in zip(distinct, verdicts)}
    rejected = [f"{symbol}: {fault}" for symbol, fault in faults.items() if fault]
    entries, files = [], {}
    for target in targets:
        good = [b for b in built if b.target == target and not faults[b.kernel.symbol]]
        image = folder / f"{target.arch}.so"
        modules = [b.module.read_bytes() for b in good]
        link_image([b.lowered.host for b in good], modules, image)
        entry = _image_entry(image, target, good)
        entries.append(entry)
        files[entry.file] = image
    reused = sum(b.reused for b in built)
    return Images(tuple(entries), files, len(built) - reused, reused, tuple(rejected))


def _image_entry(image: Path, target: CudaTarget, kernels: Sequence[Built]) -> ImageEntry:
    sha256 = file_sha256(image)
    return ImageEntry(
        target=target.name,
        file=image_name(target.name, sha256),
        bytes=image.stat().st_size,
        sha256=sha256,
        kernels=tuple(
            KernelEntry(
                b.kernel.symbol,
                b.kernel.problem,
                b.kernel.choice.to_json(),
                workspace_bytes=0,
                resources=b.resources.to_json(),
            )
            for b in kernels
        ),
        verified=EMULATED,
    )


def _in_chunks(
    pool: Executor,
    work: Callable[[Sequence[S], Path], list[T]],
    chunks: Sequence[Sequence[S]],
    cache: Path,
    step: str,
    report: Report,
) -> list[T]:
    """``work(chunk, cache)`` of all items, in their order."""
    count = sum(len(chunk) for chunk in chunks)
    report(step, 0, count)
    futures: dict[Future[list[T]], int] = {}
    # Begun from the end, where the longest work is: the last to be done should be short.
    for chunk in reversed(chunks):
        futures[pool.submit(work, chunk, cache)] = len(chunk)
    done = 0
    try:
        for future in as_completed(futures):
            future.result()
            done += futures[future]
            report(step, done, count)
    except BrokenProcessPool:
        raise BuildError(
            "a compiling process was killed (out of memory?); run again with a smaller --jobs: "
            "kernels already compiled are kept"
        ) from None
    finally:
        for future in futures:
            future.cancel()
    return [result for future in reversed(futures) for result in future.result()]


def _check_chunks(kernels: Sequence[Lowered]) -> list[list[Lowered]]:
    """Kernels that are emulated by one process; those given last are expected to take longest."""
    most = min(_CHECK_CHUNK, max(4, len(kernels) // 4))
    chunks: list[list[Lowered]] = []
    room = 0
    for lowered in kernels:
        work = lowered.kernel.problem.multiply_adds
        if not chunks or len(chunks[-1]) == most or room < work:
            chunks.append([])
            room = _CHECK_WORK
        chunks[-1].append(lowered)
        room -= work
    return chunks


def _compile_chunk(
    work: Sequence[tuple[Problem, CudaTarget, CudaChoice | None]], cache: Path
) -> list[Built]:
    return [
        build.build_best(problem, target, cache)
        if choice is None
        else build.build_kernel(CudaKernel(problem, choice), target, cache)
        for problem, target, choice in work
    ]


def _check_chunk(work: Sequence[Lowered], cache: Path) -> list[str]:
    """Faults of kernels. One that passed before, by the same checker, is not run again."""
    left = [w for w in work if not build.passed_mark(w.kernel, cache).exists()]
    found = check([_candidate(w) for w in left]) if left else []
    faults = {w.kernel.symbol: fault for w, fault in zip(left, found)}
    for w in left:
        if not faults[w.kernel.symbol]:
            build.write(build.passed_mark(w.kernel, cache), b"")
    return [faults.get(w.kernel.symbol, "") for w in work]


def _candidate(lowered: Lowered) -> Candidate:
    return Candidate(
        lowered.kernel.symbol,
        lowered.kernel.problem,
        lowered.cuda.read_text(encoding="utf-8"),
        lowered.host.read_bytes(),
    )
