"""One process of a benchmark: stock and ours at one setting, results as JSON lines.

oneDNN can only be turned on or off for a whole process, before TensorFlow is imported.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from typing import Any

from tf_tvm_ops.tools.bench.cases import Case, Oracle

LEAST_US = 1e-3
"""Time of an op that takes less than can be told."""


class WrongAnswerError(RuntimeError):
    """An implementation whose result is not the product; it is not timed."""


class FailedKernelError(RuntimeError):
    """A kernel that failed when it was called, so that something else was timed."""


def check_server(case: Case, before: str, after: Any) -> None:
    """Check that what serves a product still does.

    Parameters
    ----------
    case
        The product.
    before
        What served it before it was computed.
    after
        The tensor that tells what does now.

    Raises
    ------
    FailedKernelError
        If it is another.
    """
    now = after.numpy().decode()
    if now != before:
        raise FailedKernelError(f"{before} failed at {case}, which {now} serves since")


@dataclass(frozen=True)
class Job:
    """What one worker measures.

    Attributes
    ----------
    onednn
        Whether TensorFlow's oneDNN kernels are on.
    threads
        Intra-op threads.
    caches
        ``"hot"``, ``"cold"``: whether the inputs are in cache.
    cold_bytes
        Size of the inputs that are read in rotation when cold.
    seconds, repeats
        Of each product at each setting.
    packs
        Packs to load first.
    cases
        The products.
    cpu_target
        The best CPU target whose kernels may be used; ``""`` for the best that there is.
    fallback
        What serves a product that no kernel was made for: ``""`` for what users get.
    bare
        Whether only the bare product is measured where what follows it could be too.
    most_ops, most_copies
        Instances of an op in a graph, and copies of its inputs where they should not be in cache:
        a large graph takes longer to build than to run.
    """

    onednn: bool
    threads: int
    caches: tuple[str, ...]
    cold_bytes: int
    seconds: float
    repeats: int
    packs: tuple[str, ...]
    cases: tuple[Case, ...]
    cpu_target: str = ""
    fallback: str = ""
    bare: bool = False
    most_ops: int = 512
    most_copies: int = 2048

    @property
    def sizes(self) -> dict[str, int]:
        """What bounds the size of a graph."""
        return {"most_ops": self.most_ops, "most_copies": self.most_copies}

    def dump(self) -> str:
        """JSON text."""
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> Job:
        """The inverse of `dump`."""
        fields = json.loads(text)
        cases = tuple(
            Case(
                case["site"],
                tuple(case["lhs_shape"]),
                tuple(case["rhs_shape"]),
                case["adj_x"],
                case["adj_y"],
                case["dtype"],
            )
            for case in fields.pop("cases")
        )
        caches, packs = tuple(fields.pop("caches")), tuple(fields.pop("packs"))
        return cls(**fields, caches=caches, packs=packs, cases=cases)


def start(job: Job) -> tuple[Any, Any]:
    """TensorFlow and tf_tvm_ops, set up as the job says."""
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1" if job.onednn else "0"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if job.cpu_target:
        os.environ["TF_TVM_OPS_CPU_TARGET"] = job.cpu_target
    if job.fallback:
        os.environ["TF_TVM_OPS_FALLBACK"] = job.fallback
    import tensorflow as tf

    import tf_tvm_ops

    # All devices of a process share one pool of threads, made by whoever comes first.
    tf.config.threading.set_intra_op_parallelism_threads(job.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    for pack in job.packs:
        tf_tvm_ops.packs.load(pack)
    return tf, tf_tvm_ops


def emit(result: dict[str, Any]) -> None:
    """Hand a result to whoever started this process."""
    print(json.dumps(result), flush=True)


def measure(job: Job) -> None:
    """Measure, printing a JSON object for each product and cache state."""
    tf, tf_tvm_ops = start(job)
    from tf_tvm_ops.ops import served_by
    from tf_tvm_ops.tools.bench.timing import LastTimer

    timers = LastTimer(job.threads, job.sizes)
    for index, case in enumerate(job.cases):

        def stock(lhs: Any, rhs: Any, case: Case = case) -> Any:
            return tf.raw_ops.BatchMatMulV2(x=lhs, y=rhs, adj_x=case.adj_x, adj_y=case.adj_y)

        def ours(lhs: Any, rhs: Any, case: Case = case) -> Any:
            return tf_tvm_ops.batch_matmul(lhs, rhs, case.adj_x, case.adj_y)

        lhs, rhs = case.operands()
        oracle = Oracle(case, lhs, rhs)
        server = served_by(lhs, rhs, case.adj_x, case.adj_y).numpy().decode()
        for cache in job.caches:
            total = job.cold_bytes if cache == "cold" else 0
            ways = {"stock": stock, "ours": ours}
            timer = timers.load((case.adj_x, case.adj_y), (lhs, rhs), ways, total)
            for name, got in timer.outputs().items():
                error = oracle.worst_error(got)
                if error > 1:
                    raise WrongAnswerError(
                        f"{name}: {case}: {error:.3g} times the rounding allowed"
                    )
            timings = timer.measure(job.seconds, job.repeats)
            check_server(case, server, served_by(lhs, rhs, case.adj_x, case.adj_y))
            result = {
                "case": index,
                "cache": cache,
                "served_by": server,
                **{name: timing.to_json() for name, timing in timings.items()},
            }
            emit(result)


if __name__ == "__main__":
    measure(Job.load(sys.stdin.read()))
