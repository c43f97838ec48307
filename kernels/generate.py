"""From shape tables to a pack: choose, compile, link, check, publish."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import version
from . import build, publish
from .build import Kernel
from .compute import KERNEL_ABI
from .cuda import build as cuda_build
from .cuda.generate import make_images
from .cuda.targets import is_cuda, parse_cuda_target
from .manifest import EMULATED, NATIVE, ImageEntry, KernelEntry, Manifest, file_sha256, image_name
from .pool import process_pool
from .problem import DTYPES, LHS_CONTIGUOUS, RHS_CONTIGUOUS, Problem
from .schedules import choose
from .shapes import load_tables, problems
from .targets import TARGETS, Target, parse_target
from .verify import missing_symbols, verify_image

Report = Callable[[str, int, int], None]
"""``report(step, done, total)``: called as work proceeds, ``done`` from 0 to ``total``."""

Choices = Mapping[str, Mapping[Problem, Any]]
"""By name of target and problem: a :class:`~.schedules.Choice`, or a ``CudaChoice`` for a GPU."""

_NO_CHOICES: Choices = {}
_CHUNK = 16  # kernels to a task: few enough to share evenly, enough to outweigh the hand-over


class GenerateError(RuntimeError):
    """A pack that cannot be made; the message says why and what to do."""


@dataclass(frozen=True)
class Summary:
    """What :func:`generate` did.

    Attributes
    ----------
    pack
        The folder.
    kernels
        Number of kernels of each target in the pack.
    compiled, reused
        Object files made, and taken from the cache.
    rejected
        A line for each kernel that did not match the oracle and was left out.
    skipped
        Targets that this machine can neither run nor emulate, left out on request.
    emulated
        Targets whose kernels were checked by emulation.
    """

    pack: Path
    kernels: dict[str, int]
    compiled: int
    reused: int
    rejected: tuple[str, ...]
    skipped: tuple[str, ...]
    emulated: tuple[str, ...] = ()


def generate(
    shape_files: Sequence[Path],
    target_names: Sequence[str],
    out: Path,
    cache: Path,
    *,
    skip_unverifiable: bool = False,
    all_generic: bool = False,
    choices: Choices = _NO_CHOICES,
    jobs: int | None = None,
    report: Report = lambda step, done, total: None,
) -> Summary:
    """Make a pack with a kernel for every problem of the tables, and the generic kernels.

    Parameters
    ----------
    shape_files
        YAML shape tables.
    target_names
        As in :data:`~tf_tvm_ops.kernels.targets.TARGETS` and
        :data:`~tf_tvm_ops.kernels.cuda.targets.CUDA_TARGETS`.
    out
        The pack's folder, replaced if it is a pack.
    cache
        Folder of object files from earlier runs.
    skip_unverifiable
        Leave out targets that this machine can neither run nor emulate, and so not check, instead
        of refusing.
    all_generic
        Make generic kernels for every dtype, not only for those of the tables.
    choices
        Rules and configs that were measured to be fastest, by name of target and problem; the cost
        model chooses the others.
    jobs
        Processes that compile; all cores if None.
    report
        Told of progress.

    Returns
    -------
    Summary

    Raises
    ------
    ShapeTableError, ValueError, PublishError, BuildError, CompilerError, GenerateError
        Before anything is written to ``out``.
    """
    wanted = [parse_target(n) for n in dict.fromkeys(target_names) if not is_cuda(n)]
    gpus = [parse_cuda_target(n) for n in dict.fromkeys(target_names) if is_cuda(n)]
    table = problems(load_tables(shape_files))
    in_table = {problem.dtype for problem in table}
    dtypes = [dtype for dtype in DTYPES if all_generic or dtype in in_table]
    publish.check_writable(out)
    build.prepare_cache(cache)
    build.linker()
    made_by = cuda_build.versions() if gpus else build.versions()
    checkers = {target: found for target in wanted if (found := _checker(target)) is not None}
    targets = list(checkers)
    skipped = tuple(target.name for target in wanted if target not in checkers)
    if skipped and not skip_unverifiable:
        raise GenerateError(
            f"{', '.join(skipped)}: this machine's CPU cannot run its kernels, so they cannot be "
            "checked; generate on one that can, or pass --skip-unverifiable to leave it out"
        )
    if not targets and not gpus:
        raise GenerateError("no target left that this machine can check; nothing to generate")

    with (
        process_pool(jobs) as pool,
        tempfile.TemporaryDirectory(prefix="tf-tvm-ops-") as folder,
    ):
        kernels = [k for t in targets for k in _choose_all(table, dtypes, t, choices)]
        checked = {kernel: replace(kernel, target=checkers[kernel.target]) for kernel in kernels}
        needed = dict.fromkeys((*kernels, *checked.values()))
        objects = {kernel: build.object_path(cache, kernel) for kernel in needed}
        missing = [kernel for kernel, path in objects.items() if not path.exists()]
        _compile(pool, missing, objects, report)
        images: list[ImageEntry] = []
        files: dict[str, Path] = {}
        rejected: list[str] = []
        for target in targets:
            mine = [kernel for kernel in kernels if kernel.target is target]
            if not mine:  # a target for dtypes that the tables do not have
                continue
            image = Path(folder, f"{len(files)}.so")
            build.link_image([objects[kernel] for kernel in mine], image)
            native = checkers[target] is target
            if native:
                faults = _verify(pool, image, mine, target, report)
            else:
                faults = _verify_emulated(pool, image, [checked[k] for k in mine], objects, report)
            rejected += [f"{k.symbol}: {fault}" for k, fault in zip(mine, faults) if fault]
            good = [k for k, f in zip(mine, faults) if not f]
            entry = _image_entry(image, target, good, NATIVE if native else EMULATED)
            images.append(entry)
            files[entry.file] = image
        wanted_problems = [*_generic(dtypes), *table] if gpus else []
        cuda = make_images(pool, wanted_problems, gpus, choices, cache, Path(folder), report)
        images += cuda.entries
        files |= cuda.files
        rejected += cuda.rejected
        made_with = {
            "tf_tvm_ops": version.__version__,
            **made_by,
            "linker": build.linker_version(build.linker()),
        }
        publish.publish(out, Manifest(KERNEL_ABI, made_with, tuple(images)), files)
    return Summary(
        pack=out,
        kernels={image.target: len(image.kernels) for image in images},
        compiled=len(missing) + cuda.compiled,
        reused=len(objects) - len(missing) + cuda.reused,
        rejected=tuple(rejected),
        skipped=skipped,
        emulated=tuple(image.target for image in images if image.verified == EMULATED),
    )


def _checker(target: Target) -> Target | None:
    """What the kernels of a target are checked on: itself, what emulates it, or nothing here."""
    return target if target.runs_here() else target.emulation()


def _generic(dtypes: Sequence[str]) -> list[Problem]:
    """The problems with run-time extents."""
    return [
        Problem(None, None, None, lhs, rhs, dtype)
        for dtype in dtypes
        for lhs in LHS_CONTIGUOUS
        for rhs in RHS_CONTIGUOUS
    ]


def _choose_all(
    table: Sequence[Problem], generic_dtypes: Sequence[str], target: Target, choices: Choices
) -> Iterator[Kernel]:
    base = TARGETS[target.base] if target.base else None
    measured = choices.get(target.name, {})
    for problem in (*_generic(generic_dtypes), *table):
        if problem.dtype not in target.dtypes:
            continue
        choice = measured.get(problem) or choose(problem, target)
        if base is None or choice.rule is not choose(problem, base).rule:
            yield Kernel(problem, choice, target)


def _chunks(kernels: Sequence[Kernel]) -> list[Sequence[Kernel]]:
    return [kernels[i : i + _CHUNK] for i in range(0, len(kernels), _CHUNK)]


def _compile(
    pool: ProcessPoolExecutor, kernels: list[Kernel], paths: dict[Kernel, Path], report: Report
) -> None:
    report("compile", 0, len(kernels))
    # Large products first: the last task to end should be a short one.
    kernels = sorted(kernels, key=lambda k: -(k.problem.m or 0) * (k.problem.n or 0))
    futures: dict[Future[None], int] = {}
    for chunk in _chunks(kernels):
        futures[pool.submit(_compile_chunk, [(k, paths[k]) for k in chunk])] = len(chunk)
    done = 0
    try:
        for future in as_completed(futures):
            future.result()
            done += futures[future]
            report("compile", done, len(kernels))
    except BrokenProcessPool:
        raise GenerateError(
            "a compiling process was killed (out of memory?); run again with a smaller --jobs: "
            "kernels already compiled are kept"
        ) from None
    except OSError as error:
        raise build.cache_error(error) from error
    finally:
        for future in futures:
            future.cancel()


def _compile_chunk(work: list[tuple[Kernel, Path]]) -> None:
    for kernel, path in work:
        build.compile_object(kernel, path)


def _verify(
    pool: ProcessPoolExecutor,
    image: Path,
    kernels: Sequence[Kernel],
    target: Target,
    report: Report,
) -> list[str]:
    """What is wrong with each kernel of an image, "" where nothing is."""
    step = f"check {target.name}"
    report(step, 0, len(kernels))
    chunks = _chunks(kernels)
    futures = [
        pool.submit(verify_image, image, [(k.symbol, k.problem, k.workspace_bytes) for k in chunk])
        for chunk in chunks
    ]
    faults: list[str] = []
    for chunk, future in zip(chunks, futures):
        try:
            faults += future.result()
        except BrokenProcessPool:
            raise GenerateError(
                f"{target.name}: a kernel crashed the process that checked it, one of "
                f"{chunk[0].symbol} to {chunk[-1].symbol}; nothing was written"
            ) from None
        report(step, len(faults), len(kernels))
    return faults


def _verify_emulated(
    pool: ProcessPoolExecutor,
    image: Path,
    kernels: Sequence[Kernel],
    objects: Mapping[Kernel, Path],
    report: Report,
) -> list[str]:
    """As :func:`_verify`, of kernels for a target that emulates the one of the image."""
    emulated = image.with_suffix(".emulated.so")
    build.link_image([objects[kernel] for kernel in kernels], emulated)
    faults = _verify(pool, emulated, kernels, kernels[0].target, report)
    missing = pool.submit(missing_symbols, image, [kernel.symbol for kernel in kernels]).result()
    return [f or m for f, m in zip(faults, missing)]


def _image_entry(
    image: Path, target: Target, kernels: Sequence[Kernel], verified: str
) -> ImageEntry:
    sha256 = file_sha256(image)
    return ImageEntry(
        target=target.name,
        file=image_name(target.name, sha256),
        bytes=image.stat().st_size,
        sha256=sha256,
        kernels=tuple(
            KernelEntry(k.symbol, k.problem, k.choice.to_json(), k.workspace_bytes) for k in kernels
        ),
        verified=verified,
    )
