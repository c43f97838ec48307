"""Fixtures of the tests that need neither TVM nor TensorFlow."""

from __future__ import annotations

from pathlib import Path

import pytest

from tf_tvm_ops import _native

from .fake_packs import DTYPES, V3, V4, FakeKernel, generic_kernels, write_pack

FIXED = tuple(FakeKernel((3, 4, 5), dtype=dtype) for dtype in DTYPES)
SCRATCH = FakeKernel((2, 7, 3), behaviour="scratch", workspace_bytes=28)


@pytest.fixture(scope="session")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack for v3 and v4 with all generic kernels and some fixed ones. Not to be changed."""
    generic = [kernel for dtype in DTYPES for kernel in generic_kernels(dtype)]
    kernels = (*generic, *FIXED, SCRATCH)
    return write_pack(tmp_path_factory.mktemp("pack"), {V3: kernels, V4: kernels})


@pytest.fixture
def dispatcher(pack: Path) -> _native.Dispatcher:
    """A new dispatcher with that pack."""
    dispatcher = _native.Dispatcher()
    dispatcher.load_pack(pack)
    return dispatcher
