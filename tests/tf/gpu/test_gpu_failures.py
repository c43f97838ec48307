"""Kernels that the driver refuses: the product is served all the same, and one warning says so.

What a GPU did wrong before, and what every later call meets, is no fault of a kernel's and stays an
error.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.tf.processes import own_messages
from tests.tvm.cuda.driver import Machine
from tf_tvm_ops.kernels import manifest
from tf_tvm_ops.kernels.problem import Problem

from .conftest import PROBLEMS, SM_90

Ended = Callable[..., "subprocess.CompletedProcess[str]"]

FIXED, GENERIC = PROBLEMS[0], Problem(None, None, None, "k", "k")
FAILED = "stock (kernel_failed)"
INVALID_IMAGE = "CUDA_ERROR_INVALID_IMAGE"
OUT_OF_RESOURCES = "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"


def symbol_of(machine: Machine, problem: Problem) -> str:
    (image,) = manifest.load(machine.pack).images
    (symbol,) = (kernel.symbol for kernel in image.kernels if kernel.problem == problem)
    return symbol


def faulty(machine: Machine, fault: str, *problems: Problem) -> str:
    """For ``FAKE_DRIVER_FAULTS``."""
    return ",".join(f"{fault}:{symbol_of(machine, problem)}_kernel" for problem in problems)


def output(done: subprocess.CompletedProcess[str]) -> tuple[Any, list[str]]:
    """What was printed, as JSON, and the messages of this package."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), own_messages(done.stderr)


def assert_warns(message: str, *words: str) -> None:
    assert message.startswith("tf_tvm_ops: warning: kernel ")
    for word in words:
        assert word in message


_WAYS = """
a, b, mask = random(2, 3, 17, 64), random(2, 3, 17, 64), random(2, 1, 1, 17)
large = random(4, 1, 1, 17, 17)
bt = b.swapaxes(-1, -2)

def all_ways(index):
    # What every way to call gave, and what ran: kernels of the pack, stock, and what is said of it.
    found = []
    with tf.device(f"/GPU:{index}"):
        launches = count("fake_launches")
        for _ in range(2):
            check_matmul(batch_matmul(a, b, adj_y=True), a, bt)
            check_matmul(
                batch_matmul_add(a, b, mask, adj_y=True, scale=0.125),
                a, bt, scale=0.125, addend=mask,
            )
            swapped = batch_matmul_transpose(a, b, adj_y=True)
            found += stock_ran()
            check_matmul(np.swapaxes(swapped, 1, 2), a, bt)
            stock_ran()
            check_matmul(batch_matmul_add(a, b, large, adj_y=True), a, bt, addend=large)
            found += stock_ran()
        server = name_of(served_by(a, b, adj_y=True))
        return [count("fake_launches") - launches, found, server]
"""

_STOCK_FOR_ALL = [
    *["BatchMatMulV2", "BatchMatMulV2", "Mul", "AddV2", "BatchMatMulV2", "Transpose"],
    *["BatchMatMulV2", "AddV2"],
] * 2


def test_module_that_is_refused_on_one_gpu(machine: Machine, ended: Ended) -> None:
    """Stock serves there, in every way to call, and the kernel on the other GPU."""
    code = _WAYS + "print(json.dumps([all_ways(0), all_ways(1)]))"
    found, messages = output(
        ended(code, FAKE_DRIVER_REFUSES_MODULES="0", TF_TVM_OPS_FALLBACK="stock")
    )
    symbol = symbol_of(machine, FIXED)
    assert found == [[0, _STOCK_FOR_ALL, FAILED], [8, ["AddV2"] * 2, symbol]]
    (message,) = messages
    assert_warns(message, symbol, SM_90, str(machine.pack), "on GPU 0", INVALID_IMAGE)


@pytest.mark.parametrize("way", range(4))
def test_call_that_finds_out_is_served(ended: Ended, way: int) -> None:
    """Whichever it is: some have their output already, others a place for the product."""
    code = f"""
a, b, mask = random(2, 17, 64), random(2, 64, 17), random(17, 17)
large = random(3, 1, 17, 17)
with tf.device("/GPU:1"):
    got, more = (
        lambda: (batch_matmul(a, b), {{}}),
        lambda: (batch_matmul_add(a, b, mask, scale=2.0), dict(scale=2.0, addend=mask)),
        lambda: (np.swapaxes(batch_matmul_transpose(a, b), 0, 1), {{}}),
        lambda: (batch_matmul_add(a, b, large), dict(addend=large)),
    )[{way}]()
check_matmul(got, a, b, **more)
print(json.dumps(stock_ran()[0]))
"""
    found, messages = output(
        ended(code, FAKE_DRIVER_REFUSES_MODULES="01", TF_TVM_OPS_FALLBACK="generic")
    )
    assert found == "BatchMatMulV2"
    (message,) = messages
    assert_warns(message, "bmm_f32_generic_lk_rn_", "on GPU 1", INVALID_IMAGE)


@pytest.mark.parametrize(
    ("fallback", "refused", "launches"),
    [
        ("stock", [FIXED], 0),
        # The generic kernel is next in line.
        ("generic", [FIXED], 8),
        ("generic", [FIXED, GENERIC], 0),
    ],
)
def test_launch_that_is_refused(
    machine: Machine, ended: Ended, fallback: str, refused: Sequence[Problem], launches: int
) -> None:
    code = _WAYS + "print(json.dumps(all_ways(0)))"
    faults = faulty(machine, "refuse", *refused)
    found, messages = output(ended(code, FAKE_DRIVER_FAULTS=faults, TF_TVM_OPS_FALLBACK=fallback))
    if launches:
        assert found == [launches, ["AddV2"] * 2, symbol_of(machine, GENERIC)]
    else:
        assert found == [0, _STOCK_FOR_ALL, FAILED]
    assert len(messages) == len(refused)
    for message, problem in zip(messages, refused):
        assert_warns(message, symbol_of(machine, problem), SM_90, "on GPU 0", OUT_OF_RESOURCES)


def test_generic_kernel_that_is_refused_has_its_reason(machine: Machine, ended: Ended) -> None:
    """And no kernel made for the product is there to have another."""
    code = """
    a, b = random(5, 7), random(9, 7)
    servers = []
    with tf.device("/GPU:0"):
        for _ in range(2):
            servers.append(name_of(served_by(a, b, adj_y=True)))
            check_matmul(batch_matmul(a, b, adj_y=True), a, b.T)
    print(json.dumps(servers))
    """
    faults = faulty(machine, "refuse", GENERIC)
    found, messages = output(ended(code, FAKE_DRIVER_FAULTS=faults, TF_TVM_OPS_FALLBACK="generic"))
    assert found == [symbol_of(machine, GENERIC), FAILED]
    assert len(messages) == 1


@pytest.mark.parametrize("later", [FIXED, GENERIC])
def test_error_of_earlier_work_stays_one(machine: Machine, ended: Ended, later: Problem) -> None:
    """Also for a kernel that is loaded only then: neither it nor its launch is to blame."""
    shapes = "(17, 64), (17, 64)" if later == FIXED else "(5, 7), (9, 7)"
    code = f"""
    a, b = map(lambda shape: random(*shape), ({shapes}))
    with tf.device("/GPU:0"):
        batch_matmul(random(17, 64), random(17, 64), adj_y=True)
        errors = []
        for _ in range(2):
            try:
                batch_matmul(a, b, adj_y=True)
            except tf.errors.InternalError as error:
                errors.append(error.message)
        server = name_of(served_by(a, b, adj_y=True))
    print(json.dumps([errors, server, stock_ran()]))
    """
    faults = faulty(machine, "illegal", FIXED)
    found, messages = output(ended(code, FAKE_DRIVER_FAULTS=faults, TF_TVM_OPS_FALLBACK="generic"))
    errors, server, stock = found
    symbol = symbol_of(machine, later)
    assert len(errors) == 2
    for error in errors:
        assert f"kernel {symbol} failed" in error
        assert "CUDA_ERROR_ILLEGAL_ADDRESS" in error
    assert (server, stock, messages) == (symbol, [], [])


def test_threads_that_find_out_together_warn_once(ended: Ended) -> None:
    code = """
    import threading
    a, b = random(2, 17, 64), random(2, 17, 64)
    barrier, failures = threading.Barrier(16), []

    def work():
        barrier.wait()
        try:
            for _ in range(3):
                with tf.device("/GPU:0"):
                    check_matmul(batch_matmul(a, b, adj_y=True), a, b.swapaxes(1, 2))
        except Exception as error:
            failures.append(repr(error))

    workers = [threading.Thread(target=work) for _ in range(16)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    print(json.dumps(failures))
    """
    found, messages = output(
        ended(code, FAKE_DRIVER_REFUSES_MODULES="0", TF_TVM_OPS_FALLBACK="stock")
    )
    assert found == []
    assert len(messages) == 1


def test_gpu_with_a_number_that_has_no_place_is_served_by_stock(ended: Ended) -> None:
    code = """
    a, b = random(17, 64), random(17, 64)
    servers = []
    for number in (32, -1):
        with tf.device("/GPU:0"):
            stock.FakeGpuDescribe(
                description=f"device: {number}, name: fake, compute capability: 9.0"
            )
            check_matmul(batch_matmul(a, b, adj_y=True, scale=0.5), a, b.T, scale=0.5)
            servers.append(name_of(served_by(a, b, adj_y=True, scale=0.5)))
    print(json.dumps(servers))
    """
    found, _ = output(ended(code))
    assert found == ["stock (no_kernel)"] * 2


def test_rewriter_leaves_alone_what_a_kernel_failed_at(ended: Ended) -> None:
    code = """
    tf_tvm_ops.load()
    a, b = random(2, 17, 64), random(2, 17, 64)

    def product(a, b):
        with tf.device("/GPU:0"):
            return tf.matmul(a, b, transpose_b=True)

    found = []
    for _ in range(2):
        tf_tvm_ops.rewrite.clear_report()
        check_matmul(tf.function(product)(a, b), a, b.swapaxes(1, 2))
        found += [[o.op, o.reason, o.detail] for o in tf_tvm_ops.rewrite.report().outcomes]
    print(json.dumps(found))
    """
    found, messages = output(
        ended(code, FAKE_DRIVER_REFUSES_MODULES="0", TF_TVM_OPS_FALLBACK="stock")
    )
    first, second = found
    assert first[:2] == ["TvmBatchMatMul", ""]
    assert second == ["", "stock", "kernel_failed"]
    assert len(messages) == 1
