"""What earlier runs measured for a pack, from its manifest and the file of measurements."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from tf_tvm_ops.kernels.manifest import Manifest
from tf_tvm_ops.kernels.tuning import machine, record
from tf_tvm_ops.kernels.tuning.backend import Backend
from tf_tvm_ops.kernels.tuning.record import Record
from tf_tvm_ops.kernels.tuning.tuner import Found, known
from tf_tvm_ops.tools.tune.session import backend_of


def default_records() -> Path:
    """Where ``tf-tvm-ops tune`` keeps measurements unless it is told otherwise."""
    return Path(platformdirs.user_cache_dir("tf-tvm-ops"), "tuning.jsonl")


def found(pack: Manifest, records: Path) -> tuple[dict[str, list[Found]], list[str]]:
    """Measurements of the problems of a pack, without measuring anything.

    Those of this machine count, where it has some; otherwise those of the one that has.

    Parameters
    ----------
    pack
        Its manifest.
    records
        The file.

    Returns
    -------
    dict, list
        What was found, by target; the targets that were measured on this machine.

    Raises
    ------
    ValueError
        If the file cannot be read, or has none of them that was made by this version, or those of
        several other machines.
    """
    kept = record.read(records)
    results: dict[str, list[Found]] = {}
    here: list[str] = []
    with tempfile.TemporaryDirectory(prefix="tf-tvm-ops-") as folder:
        for image in pack.images:
            backend = backend_of(image.target, Path(folder))
            problems = {kernel.problem for kernel in image.kernels}
            mine = {
                key: r
                for key, r in kept.items()
                if r.workload.problem in problems
                and (r.target, r.code) == (backend.name, backend.code)
            }
            if not mine:
                continue
            name = _machine(backend, mine, records)
            workloads = dict.fromkeys(r.workload for r in mine.values() if r.machine == name)
            states = known(backend, name, mine, list(workloads))
            results[image.target] = [Found(state) for state in states]
            if name == machine.processor():
                here.append(image.target)
    if not results:
        raise ValueError(
            f"{records}: no measurement of the pack's problems by this version; name the --records "
            "that the pack was tuned with, or tune again"
        )
    return results, here


def _machine(backend: Backend, records: Mapping[str, Record], path: Path) -> str:
    names = sorted({r.machine for r in records.values()})
    if machine.processor() in names:
        return machine.processor()
    if len(names) > 1:
        raise ValueError(
            f"{path}: measurements for {backend.name} of {'; '.join(names)}, none of them this "
            "machine; name --records of one"
        )
    return names[0]
