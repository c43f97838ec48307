"""Measuring generic kernels against stock, and the models of time that follow from it.

The products are spread evenly over the logarithms of their extents, from a fixed seed, so that two
packs are made from the same ones.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tf_tvm_ops.kernels import manifest
from tf_tvm_ops.kernels.manifest import Manifest
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.shapes import ShapeRow
from tf_tvm_ops.kernels.tuning.fallback_model import Sample, fit
from tf_tvm_ops.tools.bench import fused, runner
from tf_tvm_ops.tools.bench.cases import Case
from tf_tvm_ops.tools.bench.worker import Job

Report = Callable[[str, int, int], None]

_SAMPLES = 24
_MOST_EXTENT = 512
_MOST_MATRICES = 1024
_MOST_MULTIPLY_ADDS = 1 << 24
_SECONDS = 0.06
_REPEATS = 7
_MOST_OPS = 64


def model_fallbacks(
    pack: Path,
    target: str,
    like: Collection[Problem],
    threads: int,
    report: Report,
) -> Manifest:
    """Fit a model for the generic kernels of one target of a pack.

    Parameters
    ----------
    pack
        Its folder.
    target
        One that this machine can run.
    like
        Problems whose dtypes and layouts matter.
    threads
        Intra-op threads.
    report
        Told of progress.

    Returns
    -------
    Manifest
        That of the pack, with the models.

    Raises
    ------
    WorkerError
        If a process that measures failed.
    """
    whole = manifest.load(pack)
    (image,) = (image for image in whole.images if image.target == target)
    kinds = {Problem(None, None, None, p.lhs, p.rhs, p.dtype) for p in like}
    generic = [kernel for kernel in image.kernels if kernel.problem in kinds]
    cases = {kernel.symbol: list(_cases(kernel.problem)) for kernel in generic}
    flat = [case for kernel in generic for case in cases[kernel.symbol]]
    job = replace(
        runner.make_job(flat, ("hot",), (str(pack),), _SECONDS, _REPEATS),
        threads=threads,
        cpu_target=target,
        fallback="generic",
        most_ops=_MOST_OPS,
    )
    measured = [_measure(job, onednn, target, report) for onednn in (True, False)]
    models: dict[str, dict[str, list[float]]] = {}
    start = 0
    for kernel in generic:
        count = len(cases[kernel.symbol])
        part = range(start, start + count)
        start += count
        samples, passes = _samples(kernel.symbol, flat, part, *measured)
        if len(samples) > count // 2:
            models[kernel.symbol] = fit(samples, passes)
    timed = replace(
        image,
        kernels=tuple(replace(k, model=models.get(k.symbol, k.model)) for k in image.kernels),
    )
    return replace(whole, images=tuple(timed if i is image else i for i in whole.images))


def _cases(problem: Problem) -> Iterator[Case]:
    """Products of the layout of a generic kernel."""
    rng = np.random.default_rng(0)
    found = 0
    while found < _SAMPLES:
        m, n, k = (round(_MOST_EXTENT ** rng.random()) for _ in range(3))
        matrices = round(_MOST_MATRICES ** rng.random())
        if m * n * k * matrices > _MOST_MULTIPLY_ADDS:
            continue
        row = ShapeRow("fallback", (1, matrices), m, n, k, problem.lhs, problem.rhs, problem.dtype)
        if (row.problem.lhs, row.problem.rhs) == (problem.lhs, problem.rhs):
            found += 1
            yield Case.of(row)


def _measure(job: Job, onednn: bool, target: str, report: Report) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    total = 2 * len(job.cases)
    for result in runner.results(replace(job, onednn=onednn), fused.MODULE):
        if "running" in result:
            continue
        found[result["case"]] = result
        report(f"fallback, {target}", len(found) + (0 if onednn else len(job.cases)), total)
    return found


def _samples(
    symbol: str,
    cases: Sequence[Case],
    part: range,
    with_onednn: dict[int, dict[str, Any]],
    without: dict[int, dict[str, Any]],
) -> tuple[list[Sample], list[tuple[int, float]]]:
    """Products that the kernel served, and passes of stock over results."""
    samples: list[Sample] = []
    passes: list[tuple[int, float]] = []
    for index in part:
        if with_onednn[index]["served_by"] != symbol:
            continue
        first, second = (
            {name: statistics.median(us) for name, us in found[index]["samples"].items()}
            for found in (with_onednn, without)
        )
        case = cases[index]
        m, n = case.out_shape[-2:]
        k = case.lhs_shape[-2 if case.adj_x else -1]
        sample = Sample(
            math.prod(case.out_shape[:-2]),
            *(m, n, k),
            *(max(us, 0.01) for us in (first["ours"], first["stock"], second["stock"])),
        )
        samples.append(sample)
        # Stock's scale and addend are two ops.
        once = (first["stock add"] - first["stock"]) / 2
        if once > 0:
            passes.append((math.prod(case.out_shape), once))
    return samples, passes
