"""The binding to the CUDA driver, on a driver without a GPU; launches: tests/tvm/cuda."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tvm.cuda.fake_cuda import fake_libraries
from tf_tvm_ops.kernels.runtime import cuda, turns

PROGRAM = """
import ctypes, json, sys
sys.path.insert(0, sys.argv[1])
from alone import cuda, turns
{body}
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the driver and a copy of the binding, as a package of its own."""
    folder = tmp_path_factory.mktemp("driver")
    fake_libraries(folder)
    (folder / "alone").mkdir()
    (folder / "alone" / "__init__.py").touch()
    for module in (cuda, turns):
        shutil.copy(module.__file__, folder / "alone")
    return folder


def run(folder: Path, body: str, **environment: str) -> subprocess.CompletedProcess:
    # Isolated and without site-packages: the binding needs nothing.
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", PROGRAM.format(body=body), folder],
        env={**os.environ, "LD_LIBRARY_PATH": str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def result(folder: Path, body: str, **environment: str) -> object:
    done = run(folder, body, **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_devices(driver):
    body = """
driver = cuda.Driver()
print(json.dumps([driver.version(), [vars(d) for d in driver.devices()]]))
"""
    version, devices = result(driver, body, FAKE_DRIVER_CAPABILITY="89")
    assert version == "13.0"
    assert devices == [
        {
            "ordinal": ordinal,
            "name": "Emulated GPU",
            "capability": 89,
            "multiprocessors": 4,
            "cache_bytes": 1 << 16,
            "memory_bytes": 1 << 30,
        }
        for ordinal in (0, 1)
    ]


def test_memory(driver):
    body = """
found = []
with cuda.Context(cuda.Driver()) as context, context.allocate(11) as memory:
    def content():
        buffer = ctypes.create_string_buffer(11)
        memory.read(ctypes.addressof(buffer), 11)
        found.append(list(buffer.raw))
    memory.fill(7)
    content()
    source = ctypes.create_string_buffer(bytes((1, 2, 3)))
    memory.write(ctypes.addressof(source), 3, offset=4)
    content()
    memory.write(ctypes.addressof(source), 3)
    memory.repeat(3)
    content()
    for offset, size in ((9, 3), (-1, 1), (0, 12)):
        try: memory.write(ctypes.addressof(source), size, offset)
        except ValueError as error: found.append(str(error))
print(json.dumps(found))
"""
    filled, written, repeated, *refused = result(driver, body)
    assert filled == [7] * 11
    assert written == [7, 7, 7, 7, 1, 2, 3, 7, 7, 7, 7]
    assert repeated == [1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2]
    assert refused == [
        "bytes 9 to 12 of memory of 11 bytes",
        "bytes -1 to 0 of memory of 11 bytes",
        "bytes 0 to 12 of memory of 11 bytes",
    ]


def test_failures_name_call_and_code(driver):
    body = """
driver = cuda.Driver()
found = []
for attempt in (
    lambda: driver.handle(3),
    lambda: cuda.Context(driver).synchronize(),
    lambda: driver.call("cuMemFree_v2", 12345),
):
    try:
        attempt()
        found.append("")
    except cuda.CudaError as error:
        found.append([error.function, error.code, str(error)])
print(json.dumps(found))
"""
    assert result(driver, body) == [
        ["cuDeviceGet", 101, "cuDeviceGet failed with 101 (fake: fake)"],
        "",
        ["cuMemFree_v2", 1, "cuMemFree_v2 failed with 1 (fake: fake)"],
    ]


def test_capture_that_fails_leaves_the_stream_usable(driver):
    body = """
with cuda.Context(cuda.Driver()) as context, context.stream() as stream:
    def fail(): raise ZeroDivisionError
    try: stream.capture(fail)
    except ZeroDivisionError: pass
    stream.synchronize()
    with stream.capture(lambda: None) as graph: graph.launch(stream)
    stream.synchronize()
print("{}")
"""
    assert result(driver, body) == {}


def test_runs_take_turns_and_the_first_round_is_not_counted(driver):
    body = """
import time
order = []
with cuda.Context(cuda.Driver()) as context, context.stream() as stream:
    times = turns.time_in_turns(
        context, stream,
        [lambda: order.append("a"), lambda: (order.append("b"), time.sleep(0.2))],
        rounds=2, before=lambda: order.append("-"),
    )
print(json.dumps([order, times]))
"""
    order, (quick, slow) = result(driver, body)
    assert "".join(order) == "-a-b" * 3
    assert len(quick) == len(slow) == 2
    assert min(slow) >= 2e5
    assert max(quick) < min(slow)


def test_without_a_driver(tmp_path, driver):
    shutil.copytree(driver / "alone", tmp_path / "alone")
    (tmp_path / "libcuda.so.1").write_text("not a library")
    done = run(tmp_path, "cuda.Driver()")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "no CUDA driver: libcuda.so.1 cannot be loaded" in last


def test_without_a_gpu(driver):
    done = run(driver, "cuda.Driver()", FAKE_DRIVER_NO_DEVICE="1")
    assert done.returncode == 1
    assert "cuInit failed with 100" in done.stderr


def test_driver_that_is_too_old(driver, tmp_path):
    shutil.copytree(driver / "alone", tmp_path / "alone")
    source = tmp_path / "old.c"
    source.write_text("int cuInit(unsigned flags) { return 0; }\n")
    command = ["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", source]
    subprocess.run([*command, "-o", tmp_path / "libcuda.so.1"], check=True)
    done = run(tmp_path, "cuda.Driver()")
    assert "has no cuDriverGetVersion: the driver is older than CUDA 11.4" in done.stderr
