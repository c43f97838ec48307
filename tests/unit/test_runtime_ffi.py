"""The binding to libtvm_ffi, on kernels that are plain C."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tf_tvm_ops.kernels.runtime import ffi

from .fake_packs import ARGUMENTS, FakeKernel, compile_image

PRODUCT = FakeKernel((3, 4, 5))
FAIL = FakeKernel((3, 4, 5), behaviour="fail")
DESCRIBE = FakeKernel(behaviour="describe")

RUNTIME = Path(ffi.__file__).parent


@pytest.fixture(scope="module")
def library() -> ffi.Library:
    return ffi.Library()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ffi") / "image.so"
    compile_image([PRODUCT, FAIL, DESCRIBE], path)
    return path


@pytest.fixture
def module(library: ffi.Library, image: Path) -> ffi.Module:
    return library.load_module(image)


class Operands:
    """One product of PRODUCT, and the arguments for it."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self.lhs = rng.standard_normal((3, 5)).astype(np.float32)
        self.rhs = rng.standard_normal((5, 4)).astype(np.float32)
        self.out = np.full((3, 4), np.nan, np.float32)

    def arguments(self, out: np.ndarray | None = None, scale: float = 1.0) -> tuple:
        pointers = [a.ctypes.data for a in (self.lhs, self.rhs)]
        pointers += [None, (self.out if out is None else out).ctypes.data, None]
        strides = (0, 0, 5, 0, 0, 4, 0, 0, 0, 0, 0, 0, 4)
        return (*map(ctypes.c_void_p, pointers), 0, 1, 1, *strides, scale)

    def expected(self) -> np.ndarray:
        return self.lhs.astype(np.float64) @ self.rhs


def test_product(module):
    operands = Operands()
    module.get_function(PRODUCT.symbol)(*operands.arguments(scale=-2.0))
    np.testing.assert_allclose(operands.out, -2.0 * operands.expected(), rtol=1e-5)


def test_prepared_call_is_made_again_with_other_arguments(module):
    operands = Operands()
    other = np.full((3, 4), np.nan, np.float32)
    call = module.get_function(PRODUCT.symbol).prepare(*operands.arguments())
    call()
    np.testing.assert_allclose(operands.out, operands.expected(), rtol=1e-5)
    operands.out[...] = np.nan
    call.set(3, ctypes.c_void_p(other.ctypes.data))
    call()
    np.testing.assert_allclose(other, operands.expected(), rtol=1e-5)
    assert np.isnan(operands.out).all()


def test_arguments_arrive_as_they_are(module):
    values: list = [(-1) ** i * (2**62 + i) for i in range(len(ARGUMENTS))]
    scale = ARGUMENTS.index("scale")
    values[scale] = math.pi
    pointers = [ctypes.c_void_p(None)] * 5
    with pytest.raises(ffi.FfiError) as error:
        module.get_function(DESCRIBE.symbol)(*pointers, *values)
    words = str(error.value).removeprefix("ValueError: ").split()
    assert float(words.pop(scale)) == values.pop(scale)
    assert list(map(int, words)) == values


def test_errors_have_kind_and_message(module):
    with pytest.raises(ffi.FfiError, match=r"^ValueError: ") as error:
        module.get_function(DESCRIBE.symbol)(*[ctypes.c_void_p()] * 5, *[7] * 16, 1.0, 1, 1, 1)
    assert error.value.kind == "ValueError"
    call = module.get_function(FAIL.symbol).prepare(*Operands().arguments())
    for _ in range(2):
        with pytest.raises(ffi.FfiError):
            call()


def test_missing_function(module):
    with pytest.raises(AttributeError, match="no function 'nothing'"):
        module.get_function("nothing")


def test_missing_global_function(library):
    with pytest.raises(KeyError, match="nothing"):
        library.global_function("nothing")


def test_missing_image(library, tmp_path):
    with pytest.raises(ffi.FfiError, match=r"absent\.so"):
        library.load_module(tmp_path / "absent.so")


def test_missing_library(tmp_path):
    with pytest.raises(ffi.LibraryNotFoundError, match=r"libtvm_ffi\.so cannot be loaded"):
        ffi.Library(str(tmp_path / "libtvm_ffi.so"))


def test_other_versions_are_refused(monkeypatch):
    monkeypatch.setattr(ffi, "_VERSION", (0, 2))
    with pytest.raises(ffi.LibraryNotFoundError, match=r"is version 0\.1\.\d+, expected 0\.2"):
        ffi.Library()


@pytest.mark.parametrize("argument", [np.int64(1), b"bytes", 1j])
def test_arguments_of_other_types_are_refused(module, argument):
    with pytest.raises(TypeError, match=f"argument 5 is {type(argument).__name__}"):
        module.get_function(PRODUCT.symbol)(*[ctypes.c_void_p()] * 5, argument)


@pytest.mark.parametrize("argument", [2**63, -(2**63) - 1])
def test_integers_that_do_not_fit_are_refused(module, argument):
    with pytest.raises(OverflowError, match=str(argument)):
        module.get_function(PRODUCT.symbol)(argument)


def test_function_outlives_what_it_came_from(library, image):
    function = library.load_module(image).get_function(PRODUCT.symbol)
    operands = Operands()
    function(*operands.arguments())
    np.testing.assert_allclose(operands.out, operands.expected(), rtol=1e-5)


def test_stream_is_set_and_set_back(library):
    before = library.set_stream(0, 0x5EED)
    assert library.set_stream(0, before) == 0x5EED
    assert library.set_stream(0, before) == before


def test_works_as_a_copy_of_its_own(image, tmp_path):
    """Without packages, this one's included."""
    package = tmp_path / "alone"
    package.mkdir()
    (package / "__init__.py").touch()
    shutil.copy(RUNTIME / "ffi.py", package)
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from alone import ffi\n"
        f"library = ffi.Library({ffi.find_library()!r})\n"
        f"module = library.load_module({str(image)!r})\n"
        f"try: module.get_function({FAIL.symbol!r})()\n"
        "except ffi.FfiError as error: print(error)\n"
        "try: ffi.find_library()\n"
        "except ffi.LibraryNotFoundError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert "Error: " in first
    assert "apache-tvm-ffi is not installed" in second
