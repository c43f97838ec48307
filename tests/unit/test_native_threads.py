"""Many threads at once, errors of kernels, and the end of the process."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests import oracle
from tf_tvm_ops import _native

from .fake_packs import GENERIC, V3, FakeKernel, write_pack
from .test_dispatcher import run_python

THREADS = 32

SHAPES = [
    ((9, m, k), (9, k, n))
    for m, n, k in ((3, 4, 5), (2, 7, 3), (1, 17, 64), (17, 17, 8), (5, 1, 9), (1, 1, 1), (8, 8, 1))
]


def operands(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    lhs, rhs = SHAPES[seed % len(SHAPES)]
    return rng.random(lhs, np.float32), rng.random(rhs, np.float32)


def test_threads_give_the_same_bits_from_the_first_call_on(pack: Path) -> None:
    """32 threads start at once on a dispatcher whose images nobody has opened yet."""
    serial = _native.Dispatcher()
    serial.load_pack(pack)
    want = [serial.matmul(*operands(seed))[0].tobytes() for seed in range(64)]
    for _ in range(5):
        for index, got in enumerate(results_of_all_threads(pack)):
            assert got == [want[(index + step) % 64] for step in range(64)]


def results_of_all_threads(pack: Path) -> list[list[bytes]]:
    dispatcher = _native.Dispatcher()
    dispatcher.load_pack(pack)
    barrier = threading.Barrier(THREADS)

    def work(index: int) -> list[bytes]:
        mine = [operands((index + step) % 64) for step in range(64)]
        barrier.wait()
        threads = 1 + index % 3
        return [dispatcher.matmul(*pair, threads=threads)[0].tobytes() for pair in mine]

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(work, range(THREADS)))


@pytest.mark.parametrize("threads", [1, 2, 3, 7, 32, 1000])
def test_any_partition_gives_the_same_bits(dispatcher: _native.Dispatcher, threads: int) -> None:
    rng = np.random.default_rng(3)
    lhs = rng.random((4, 1, 5, 3, 5), np.float32)[::2]
    rhs = rng.random((1, 3, 5, 5, 4), np.float32)
    addend = rng.random((1, 3, 1, 3, 4), np.float32)
    want, _ = dispatcher.matmul(lhs, rhs, addend=addend)
    got, _ = dispatcher.matmul(lhs, rhs, addend=addend, threads=threads)
    oracle.check_matmul(got, lhs, rhs, addend=addend)
    assert got.tobytes() == want.tobytes()


def test_packs_are_loaded_while_threads_compute(tmp_path: Path, pack: Path) -> None:
    packs = [write_pack(tmp_path / str(i), {V3: GENERIC}) for i in range(3)]
    dispatcher = _native.Dispatcher()
    dispatcher.load_pack(pack)
    stop = threading.Event()

    def compute(seed: int) -> int:
        lhs, rhs = operands(seed)
        calls = 0
        while not stop.is_set():
            out, _ = dispatcher.matmul(lhs, rhs)
            oracle.check_matmul(out, lhs, rhs)
            calls += 1
        return calls

    with ThreadPoolExecutor(8) as pool:
        running = [pool.submit(compute, seed) for seed in range(8)]
        for _ in range(20):
            for path in packs:
                dispatcher.load_pack(path)
        stop.set()
        assert all(future.result() > 0 for future in running)
    assert len(dispatcher.packs()) == 4


@pytest.fixture
def failing_pack(tmp_path: Path) -> Path:
    return write_pack(tmp_path, {V3: [FakeKernel((3, 4, 5), behaviour="fail")]})


FAIL = """
import sys
import numpy as np
from tf_tvm_ops import _native
dispatcher = _native.Dispatcher()
dispatcher.load_pack({pack!r})
for threads in (1, 4):
    try:
        dispatcher.matmul(np.ones((8, 3, 5), "f4"), np.ones((8, 5, 4), "f4"), threads=threads)
    except RuntimeError as error:
        print(error)
assert not {{"tvm_ffi", "ml_dtypes"}} & set(sys.modules)
"""


def test_error_of_a_kernel(failing_pack: Path) -> None:
    """In a process where nobody but us loads libtvm_ffi, whose functions the image needs."""
    done = run_python(FAIL.format(pack=str(failing_pack)))
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout.splitlines()
        == ["kernel fake_float32_3x4x5_lk_rn_fail: ValueError: made to fail"] * 2
    )
    assert done.stderr == ""


SETUP = """
import sys, threading, time
import numpy as np
from tf_tvm_ops import _native
dispatcher = _native.Dispatcher()
dispatcher.load_pack({pack!r})
lhs, rhs = np.ones((64, 2, 3), "f4"), np.ones((64, 3, 7), "f4")
big = np.ones((400, 100, 100), "f4")

def compute_for_ever(lhs, rhs, addend=None):
    while True:
        dispatcher.matmul(lhs, rhs, threads=2, addend=addend)

def start(*operands):
    threading.Thread(target=compute_for_ever, args=operands, daemon=True).start()
"""

EXITS = {
    "right after a call": "dispatcher.matmul(lhs, rhs, threads=4)",
    "through sys.exit": "dispatcher.matmul(lhs, rhs); sys.exit(0)",
    "with the dispatcher gone": "kernel = dispatcher.matmul(lhs, rhs)[1]; del dispatcher",
    "while threads make short calls": "for _ in range(4): start(lhs, rhs)\ntime.sleep(0.2)",
    "while threads copy addends": (
        "addend = np.ones((64, 7, 2), 'f4').swapaxes(1, 2)\n"
        "for _ in range(4): start(lhs, rhs, addend)\ntime.sleep(0.2)"
    ),
    "while a thread is in a long call": "start(big, big)\ntime.sleep(0.2)",
    "in atexit": (
        "import atexit\natexit.register(lambda: dispatcher.matmul(lhs, rhs))\n"
        "start(lhs, rhs)\ndispatcher.matmul(lhs, rhs)"
    ),
    "with the global one": "_native.global_dispatcher().packs()\nstart(lhs, rhs)",
}


@pytest.mark.parametrize("last", EXITS.values(), ids=EXITS.keys())
def test_exit(pack: Path, last: str) -> None:
    for _ in range(3):
        done = run_python(SETUP.format(pack=str(pack)) + last)
        assert (done.returncode, done.stderr) == (0, "")
