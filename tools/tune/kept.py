"""What earlier runs measured for a pack, from its manifest and the file of measurements."""

from __future__ import annotations

import tempfile
from pathlib import Path

import platformdirs

from tf_tvm_ops.kernels.cuda.targets import is_cuda
from tf_tvm_ops.kernels.manifest import Manifest
from tf_tvm_ops.kernels.targets import parse_target
from tf_tvm_ops.kernels.tuning import record
from tf_tvm_ops.kernels.tuning.backend import CpuBackend
from tf_tvm_ops.kernels.tuning.local import LocalMeasurer
from tf_tvm_ops.kernels.tuning.tuner import Found, Tuner
from tf_tvm_ops.kernels.tuning.workload import Workload


def default_records() -> Path:
    """Where ``tf-tvm-ops tune`` keeps measurements unless it is told otherwise."""
    return Path(platformdirs.user_cache_dir("tf-tvm-ops"), "tuning.jsonl")


def found(pack: Manifest, records: Path) -> dict[str, list[Found]]:
    """Measurements of the problems of a pack, by target, without measuring anything.

    Parameters
    ----------
    pack
        Its manifest.
    records
        The file.

    Raises
    ------
    ValueError
        If the file cannot be read, or has none of them that was made by this version on this
        machine.
    """
    kept = record.read(records).values()
    results: dict[str, list[Found]] = {}
    with tempfile.TemporaryDirectory(prefix="tf-tvm-ops-") as folder, LocalMeasurer() as measurer:
        for image in pack.images:
            if is_cuda(image.target):
                continue
            problems = {kernel.problem for kernel in image.kernels}
            backend = CpuBackend(parse_target(image.target), Path(folder))
            workloads: dict[Workload, None] = dict.fromkeys(
                r.workload
                for r in kept
                if r.workload.problem in problems
                and (r.target, r.code, r.machine) == (backend.name, backend.code, measurer.machine)
            )
            if workloads:
                states = Tuner(backend, measurer, records).known(list(workloads))
                results[image.target] = [Found(state) for state in states]
    if not results:
        raise ValueError(
            f"{records}: no measurement of the pack's problems by this version on this machine; "
            "name the --records that the pack was tuned with, or tune again"
        )
    return results
