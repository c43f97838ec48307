"""The process of test_dispatch.py: ``python -m tests.tvm.cuda.dispatch_run PACK FUNCTION``.

Each function computes on GPUs through the dispatcher and gives what is to be printed as JSON.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
from typing import Any

import numpy as np
import tvm_ffi

from tests import oracle
from tf_tvm_ops import _native

CUDA = 2  # kDLCUDA
STREAM = 0x5EED
OLD_STREAM = 0x01D

Array = np.ndarray[Any, Any]


class Driver:
    """What the fakes have seen, and the state of this thread."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.cuda.cuCtxSetCurrent.argtypes = [ctypes.c_void_p]

    def count(self, name: str) -> int:
        return ctypes.c_int.in_dll(self.cuda, name).value

    def seen(self) -> dict[str, Any]:
        stream = ctypes.c_void_p.in_dll(self.cuda, "fake_stream").value
        return {"device": self.count("fake_device"), "stream": stream}

    def context(self) -> int | None:
        context = ctypes.c_void_p()
        assert self.cuda.cuCtxGetCurrent(ctypes.byref(context)) == 0
        return context.value

    def set_context(self, context: int | None) -> None:
        assert self.cuda.cuCtxSetCurrent(context) == 0


def set_stream(device: int, stream: int | None) -> int | None:
    """The stream of this thread for TVM's runtime; gives the one before."""
    ffi = ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi())
    before = ctypes.c_void_p()
    assert ffi.TVMFFIEnvSetStream(CUDA, device, ctypes.c_void_p(stream), ctypes.byref(before)) == 0
    return before.value


def random(*shape: int, dtype: str = "float32") -> Array:
    rng = np.random.default_rng(sum(shape))
    return (rng.random(shape) - 0.5).astype(dtype)


def loaded(pack: str) -> _native.Dispatcher:
    dispatcher = _native.Dispatcher()
    dispatcher.load_pack(pack)
    return dispatcher


def products(pack: str) -> Any:
    """Products of every kind, each against the oracle; the kernels that made them."""
    dispatcher = loaded(pack)
    gpu = _native.Gpu((9, 0), 0, STREAM)
    symbols = []
    for lhs, rhs, addend, scale in (
        (random(3, 17, 64), random(3, 64, 17), None, 1.0),
        (random(2, 3, 17, 64), random(2, 3, 17, 64).swapaxes(-1, -2), random(2, 1, 1, 17), 0.125),
        # Matrices that no two dimensions count through: several launches.
        (random(2, 1, 2, 5, 7), random(1, 3, 2, 7, 4), random(1, 3, 1, 5, 1), 2.0),
        (random(5, 7).T, random(5, 4), random(4), 1.0),
        (random(4, 9, 33, dtype="float16"), random(33, 6, dtype="float16"), None, 0.5),
    ):
        out = np.full((*np.broadcast_shapes(lhs.shape[:-2], rhs.shape[:-2]), 1, 1), np.nan)
        out = np.tile(out, (lhs.shape[-2], rhs.shape[-1])).astype(lhs.dtype)
        _, kernel = dispatcher.matmul(lhs, rhs, out=out, addend=addend, scale=scale, gpu=gpu)
        oracle.check_matmul(out, lhs, rhs, scale=scale, addend=addend)
        assert kernel is not None
        symbols.append((kernel.symbol, kernel.target))
    return symbols


def state(pack: str) -> Any:
    """Where launches go, and what the thread has before and after."""
    dispatcher, driver = loaded(pack), Driver()
    lhs, rhs = random(17, 64), random(64, 17)
    found = []
    for device, context, stream in ((1, None, 0xB), (0, 2, 0xA), (0, 1, 0xC), (1, 1, 0xD)):
        driver.set_context(context)
        old = set_stream(device, OLD_STREAM)
        gpu = _native.Gpu((9, 0), device, stream)
        dispatcher.matmul(lhs, rhs, gpu=gpu)
        after = {"context": driver.context(), "old_stream": set_stream(device, old)}
        found.append({**driver.seen(), **after})
    return found


def images(pack: str) -> Any:
    """Which image serves GPUs of several compute capabilities."""
    dispatcher, driver = loaded(pack), Driver()
    found = {}
    for capability in ((7, 5), (8, 9), (9, 0), (12, 0), (7, 5)):
        gpu = _native.Gpu(capability)
        kernel = dispatcher.find(17, 17, 64, gpu=gpu)
        found[str(capability)] = kernel and kernel.target
    lhs, rhs = random(17, 64), random(64, 17)
    modules = [driver.count("fake_ptx_modules")]
    out, _ = dispatcher.matmul(lhs, rhs, gpu=_native.Gpu((12, 0)))
    oracle.check_matmul(out, lhs, rhs)
    modules.append(driver.count("fake_ptx_modules"))
    try:
        dispatcher.matmul(lhs, rhs, gpu=_native.Gpu((7, 5)))
    except LookupError as error:
        return {"found": found, "ptx": modules, "refused": str(error)}
    raise AssertionError


def both(pack: str) -> Any:
    """A pack with images for CPUs and GPUs: what is told of it, and which serves where."""
    dispatcher = _native.Dispatcher()
    info = dispatcher.load_pack(pack)
    lhs, rhs = random(17, 64), random(64, 17)
    servers = []
    for gpu in (None, _native.Gpu((9, 0))):
        out, kernel = dispatcher.matmul(lhs, rhs, gpu=gpu)
        oracle.check_matmul(out, lhs, rhs)
        assert kernel is not None
        servers.append(kernel.target)
    return {
        "targets": info.targets,
        "ignored": info.ignored,
        "kernels": info.kernels,
        "on_cpu": servers[0],
        "on_gpu": servers[1],
    }


def error(pack: str) -> Any:
    """What a product ends with, twice."""
    dispatcher = loaded(pack)
    errors = []
    for _ in range(2):
        try:
            dispatcher.matmul(random(17, 64), random(64, 17), gpu=_native.Gpu((9, 0)))
        except (LookupError, RuntimeError) as error:
            errors.append(f"{type(error).__name__}: {error}")
    return {"errors": errors, "problem": _native.cuda_problem()}


def wrong_places(pack: str) -> Any:
    """Errors of devices there are not, and of an empty sum; the context afterwards."""
    dispatcher, driver = loaded(pack), Driver()
    errors = []
    for device, k in ((2, 64), (32, 64), (-1, 64), (0, 0)):
        try:
            gpu = _native.Gpu((9, 0), device)
            dispatcher.matmul(random(17, k), random(k, 17), gpu=gpu)
        except RuntimeError as error:
            errors.append(str(error))
    return {"errors": errors, "context": driver.context()}


def threads(pack: str) -> Any:
    """32 threads with mixed shapes, on both GPUs, the first call among them."""
    dispatcher = loaded(pack)
    shapes = ((17, 17, 64), (5, 3, 9), (1, 30, 20))
    failures: list[str] = []
    barrier = threading.Barrier(32)

    def work(index: int) -> None:
        driver = Driver()
        m, n, k = shapes[index % len(shapes)]
        lhs, rhs = random(2, m, k), random(2, k, n)
        barrier.wait()
        for _ in range(5):
            gpu = _native.Gpu((9, 0), index % 2, index + 1)
            out, _ = dispatcher.matmul(lhs, rhs, gpu=gpu)
            try:
                oracle.check_matmul(out, lhs, rhs)
                assert driver.context() is None
            except AssertionError as error:
                failures.append(str(error))

    workers = [threading.Thread(target=work, args=(index,)) for index in range(32)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return {"failures": failures, "launches": Driver().count("fake_launches")}


def main() -> None:
    print(json.dumps(globals()[sys.argv[2]](sys.argv[1])))


if __name__ == "__main__":
    main()
