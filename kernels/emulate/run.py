"""The process that runs emulated kernels: ``python -m … .emulate.run FOLDER SECONDS``.

Reads symbols and problems from standard input; writes a line before and after each kernel, so that
the parent knows which one ended the process. An alarm ends it where one takes longer than SECONDS.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import signal
import sys
from pathlib import Path

import tvm_ffi

from ..problem import Problem
from ..verify import verify_kernel

ORDERS = ("first thread first", "last thread first")


def load_runtime() -> None:
    """Load TVM's runtime, which launching functions find through tvm-ffi, without the compiler."""
    spec = importlib.util.find_spec("tvm")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        ctypes.CDLL(str(Path(folder, "lib", "libtvm_runtime.so")), ctypes.RTLD_GLOBAL)


def main() -> None:
    """Check what standard input names in the libraries of a folder."""
    load_runtime()
    folder = Path(sys.argv[1])
    device_path = str(folder / "device.so")
    host = tvm_ffi.load_module(str(folder / "host.so"))
    host.import_module(tvm_ffi.load_module(device_path))
    order = ctypes.c_int.in_dll(ctypes.CDLL(device_path), "emulate_order")
    for symbol, fields in json.load(sys.stdin):
        print("begun", symbol, flush=True)
        signal.setitimer(signal.ITIMER_REAL, float(sys.argv[2]))
        fault = ""
        for value, words in enumerate(ORDERS):
            order.value = value
            try:
                found = verify_kernel(host, symbol, Problem.from_json(fields), 0)
            except RuntimeError as error:
                found = str(error).strip().splitlines()[-1]
            if found:
                fault = f"{found} ({words})"
                break
        print(json.dumps({symbol: fault}), flush=True)


if __name__ == "__main__":
    main()
