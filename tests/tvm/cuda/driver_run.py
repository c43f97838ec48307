"""The process of test_runtime.py: an image, TVM's CUDA runtime, and a driver without a GPU.

Arguments: folder of the image and of the driver, TVM's CUDA runtime, JSON of symbols and problems.
Prints one JSON document.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

import tvm_ffi

from tf_tvm_ops.kernels.emulate.run import load_runtime
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.verify import verify_kernel

CUDA = 2  # kDLCUDA
STREAM = 0x5EED


def main() -> None:
    folder = Path(sys.argv[1])
    load_runtime()
    ctypes.CDLL(sys.argv[2], ctypes.RTLD_GLOBAL)
    image = tvm_ffi.load_module(str(folder / "image.so"))
    driver = ctypes.CDLL(str(folder / "libcuda.so.1"))
    assert ctypes.CDLL(str(folder / "libcudart.so.13")).cudaSetDevice(0) == 0

    def count(name: str) -> int:
        return ctypes.c_int.in_dll(driver, name).value

    ffi = ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi())
    before = ctypes.c_void_p()
    stream = ctypes.c_void_p(STREAM)
    assert ffi.TVMFFIEnvSetStream(CUDA, 0, stream, ctypes.byref(before)) == 0
    result = {"faults": [], "modules": [count("fake_modules")]}
    for symbol, fields in json.loads(sys.argv[3]):
        result["faults"].append(verify_kernel(image, symbol, Problem.from_json(fields), 0))
        result["modules"].append(count("fake_modules"))
    result["launches"] = count("fake_launches")
    result["stream"] = ctypes.c_void_p.in_dll(driver, "fake_stream").value
    print(json.dumps(result))


if __name__ == "__main__":
    main()
