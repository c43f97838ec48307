"""Damaged and foreign packs: cc/dispatch/manifest.cc and cc/dispatch/image.cc.

Whatever is wrong with a pack, it is one clear message, and everything else goes on working.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import oracle
from tf_tvm_ops import _native

from .fake_packs import (
    GENERIC,
    V3,
    V4,
    FakeKernel,
    compile_image,
    edit_manifest,
    flip_byte,
    image_of,
    write_pack,
)

LHS = np.arange(30, dtype=np.float32).reshape(2, 3, 5)
RHS = np.arange(40, dtype=np.float32).reshape(2, 5, 4)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pack(tmp_path_factory.mktemp("good"), {V3: GENERIC})


@pytest.fixture
def bad(tmp_path: Path, good: Path) -> Path:
    """A copy of that pack, to be damaged."""
    return shutil.copytree(good, tmp_path / "bad")


def assert_refused(good: Path, bad: Path, reason: str) -> str:
    """Assert that one sentence says why, and that a good pack serves before and after."""
    dispatcher = _native.Dispatcher()
    dispatcher.load_pack(good)
    with pytest.raises(ValueError, match=reason) as error:
        dispatcher.load_pack(bad)
    message = str(error.value)
    assert str(bad) in message
    assert "\n" not in message
    assert [info.path for info in dispatcher.packs()] == [str(good)]
    out, _ = dispatcher.matmul(LHS, RHS)
    oracle.check_matmul(out, LHS, RHS)
    return message


def set_at(*path: str | int, to: Any) -> Callable[[dict[str, Any]], None]:
    def edit(manifest: Any) -> None:
        for step in path[:-1]:
            manifest = manifest[step]
        manifest[path[-1]] = to

    return edit


IMAGE = ("images", 0)
KERNEL = (*IMAGE, "kernels", 1)
PROBLEM = (*KERNEL, "problem")

WRONG_VALUES = [
    (("schema",), 2, r"schema 2 where .* reads 1: install the version"),
    (("schema",), "1", r"schema: expected an integer .*, got \"1\""),
    (("schema",), 1.0, r"schema: expected an integer"),
    (("schema",), True, r"schema: expected an integer .*, got true"),
    (("abi",), 7, r"abi 7 where .* reads 2"),
    (("abi",), 1, r"abi 1 where .* reads 2: install the version .* or make it again"),
    (("images",), {}, r"images: expected an array, got {}"),
    (("images",), [3], r"images\[0\]: expected an object, got 3"),
    ((*IMAGE, "target"), None, r"images\[0\].target: expected a string, got null"),
    ((*IMAGE, "file"), "../other.so", r"file: expected the plain name .* got \"../other.so\""),
    ((*IMAGE, "file"), "/lib/libc.so", r"file: expected the plain name"),
    ((*IMAGE, "file"), "sub/image.so", r"file: expected the plain name"),
    ((*IMAGE, "file"), "a..b.so", r"file: expected the plain name"),
    ((*IMAGE, "file"), ".so", r"file: expected the plain name"),
    ((*IMAGE, "file"), "image.dll", r"file: expected the plain name"),
    ((*IMAGE, "file"), "image\u0000.so", r"file: expected the plain name"),
    ((*IMAGE, "file"), "x" * 300 + ".so", r"file: expected the plain name .*\.\.\.;"),
    ((*IMAGE, "bytes"), -1, r"bytes: expected an integer from 1"),
    ((*IMAGE, "bytes"), 1e30, r"bytes: expected an integer from 1"),
    ((*IMAGE, "sha256"), "ab", r"sha256: expected 64 lower-case hex digits, got \"ab\""),
    ((*IMAGE, "sha256"), "A" * 64, r"sha256: expected 64 lower-case hex digits"),
    ((*IMAGE, "kernels"), "none", r"images\[0\].kernels: expected an array"),
    ((*IMAGE, "kernels"), [], r"none of its images holds a kernel for this machine"),
    ((*KERNEL, "symbol"), "a-b", r"images\[0\].kernels\[1\].symbol: expected a symbol of letters"),
    ((*KERNEL, "symbol"), "", r"symbol: expected a symbol of letters"),
    ((*KERNEL, "symbol"), "ä", r"symbol: expected a symbol of letters"),
    ((*KERNEL, "config"), "fast", r"config: expected an object"),
    ((*KERNEL, "workspace_bytes"), -64, r"workspace_bytes: expected an integer from 0"),
    ((*KERNEL, "workspace_bytes"), 1 << 50, r"workspace_bytes: expected an integer from 0"),
    ((*KERNEL, "problem"), [], r"kernels\[1\].problem: expected an object"),
    ((*PROBLEM, "m"), 3, r"problem: expected m, n and k to be all integers, or all null"),
    ((*PROBLEM, "dtype"), "int8", r"dtype: expected a value that this version .*\"int8\""),
    ((*PROBLEM, "dtype"), "Float16", r"dtype: expected a value that this version"),
    ((*PROBLEM, "lhs"), "n", r"lhs: expected a value"),
    ((*PROBLEM, "rhs"), "m", r"rhs: expected a value"),
    ((*KERNEL, "timings"), {}, r"timings: expected an array"),
    ((*KERNEL, "timings"), [{}], r"timings\[0\]: the key 'matrices' is missing"),
    ((*KERNEL, "model"), [], r"model: expected an object"),
    ((*KERNEL, "model"), {"kernel": [1.0] * 7}, r"model.kernel: expected an array of 8 numbers"),
    ((*KERNEL, "model"), {"kernel": [-1.0] * 8}, r"kernel\[0\]: expected a number that is not neg"),
]


@pytest.mark.parametrize(("path", "value", "reason"), WRONG_VALUES, ids=str)
def test_wrong_value(
    good: Path, bad: Path, path: tuple[str | int, ...], value: Any, reason: str
) -> None:
    edit_manifest(bad, set_at(*path, to=value))
    assert_refused(good, bad, reason)


@pytest.mark.parametrize("extents", [(0, 1, 1), (1, -1, 1), (1, 1, 1 << 25), (1.5, 2, 3)], ids=str)
def test_wrong_extents(good: Path, bad: Path, extents: tuple[Any, Any, Any]) -> None:
    for name, extent in zip("mnk", extents):
        edit_manifest(bad, set_at(*PROBLEM, name, to=extent))
    assert_refused(good, bad, r"problem.[mnk]: expected an integer from 1 to 16777216")


def every_key(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    if isinstance(value, list):
        return [p for i, each in enumerate(value) for p in every_key(each, (*path, i))]
    if isinstance(value, dict) and "config" not in path and "made_with" not in path:
        return [
            p for key, each in value.items() for p in [(*path, key), *every_key(each, (*path, key))]
        ]
    return []


def test_every_missing_key_is_named(good: Path, bad: Path) -> None:
    whole = json.loads((good / "manifest.json").read_text())
    paths = [path for path in every_key(whole) if path != ("made_with",)]
    assert len(paths) == 3 + 5 + len(GENERIC) * (4 + 6)
    for *parents, key in paths:
        manifest = json.loads((good / "manifest.json").read_text())
        inner = manifest
        for step in parents:
            inner = inner[step]
        del inner[key]
        (bad / "manifest.json").write_text(json.dumps(manifest))
        assert_refused(good, bad, f"the key '{key}' is missing")


def test_unknown_keys_are_ignored(bad: Path) -> None:
    for path in ((), IMAGE, KERNEL, PROBLEM):
        edit_manifest(bad, set_at(*path, "new_in_some_version", to={"deep": [1, None, 2.5]}))
    dispatcher = _native.Dispatcher()
    assert dispatcher.load_pack(bad).kernels == len(GENERIC)
    out, _ = dispatcher.matmul(LHS, RHS)
    oracle.check_matmul(out, LHS, RHS)


def test_not_a_pack(good: Path, tmp_path: Path) -> None:
    assert_refused(
        good, tmp_path / "absent", "No such file or directory; expected a folder made by"
    )
    assert_refused(good, tmp_path, "manifest.json: No such file or directory")
    (tmp_path / "manifest.json").mkdir()
    assert_refused(good, tmp_path, "manifest.json: not a regular file")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "expected an object, got \\[\\]"),
        (b"null", "expected an object, got null"),
        (b"\x00\x01\xff", "not JSON"),
        (b"[" * 1_000_000, "nested too deeply"),
        (b'{"a":' * 1_000_000, "nested too deeply"),
        (b'{"schema": 1, "abi": 2, "images": NaN}', "images: expected an array"),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_not_a_manifest(good: Path, bad: Path, text: bytes, reason: str) -> None:
    (bad / "manifest.json").write_bytes(text)
    assert_refused(good, bad, reason)


def test_huge_manifest(good: Path, bad: Path) -> None:
    with (bad / "manifest.json").open("r+b") as file:
        file.truncate(1 << 40)  # sparse; read whole, it would exhaust the memory
    assert_refused(good, bad, "it has 1099511627776 bytes, more than the 67108864 allowed")


def test_truncated_manifest(good: Path, bad: Path) -> None:
    text = (good / "manifest.json").read_bytes()
    for length in range(0, len(text) - 1, 13):
        (bad / "manifest.json").write_bytes(text[:length])
        assert_refused(good, bad, "not JSON")


def test_flipped_bytes_of_the_manifest(good: Path, bad: Path, capfd: Any) -> None:
    """Any damage is a ValueError, or harmless as in a comment: never a crash or a wrong result."""
    text = (good / "manifest.json").read_bytes()
    rng = random.Random(7)
    refused = 0
    for _ in range(400):
        damaged = bytearray(text)
        damaged[rng.randrange(len(text))] ^= 1 << rng.randrange(8)
        (bad / "manifest.json").write_bytes(damaged)
        dispatcher = _native.Dispatcher()
        try:
            dispatcher.load_pack(bad)
        except ValueError:
            refused += 1
            continue
        try:
            out, kernel = dispatcher.matmul(LHS, RHS)
        except LookupError:  # the checksum, the file, a symbol, or the layout is another one
            continue
        assert kernel is not None
        if kernel.symbol == GENERIC[0].symbol:
            oracle.check_matmul(out, LHS, RHS)
    assert refused > 200
    capfd.readouterr()


def test_foreign_targets_are_ignored(bad: Path) -> None:
    def add(manifest: dict[str, Any]) -> None:
        # Nothing but the target of a foreign image is looked at.
        manifest["images"].append({"target": "cuda:sm_999", "kernels": [{"problem": "softmax"}]})

    edit_manifest(bad, add)
    info = _native.Dispatcher().load_pack(bad)
    assert info.targets == [V3]
    (ignored,) = info.ignored
    assert ignored.startswith("cuda:sm_999: this version of tf_tvm_ops knows only cpu:")
    assert "cuda:sm_90, " in ignored


def test_only_foreign_targets(good: Path, bad: Path) -> None:
    edit_manifest(bad, set_at("images", to=[{"target": "cuda:sm_999"}]))
    assert_refused(good, bad, r"none of its images holds a kernel .*\(cuda:sm_999: this version")


def both_targets(folder: Path) -> Path:
    return write_pack(folder, {V3: GENERIC, V4: GENERIC})


def test_missing_image(tmp_path: Path, good: Path, capfd: Any) -> None:
    pack = both_targets(tmp_path / "pack")
    image_of(pack, V4).unlink()
    dispatcher = _native.Dispatcher()
    info = dispatcher.load_pack(pack)
    assert info.targets == [V3]
    assert "No such file or directory" in info.ignored[0]
    out, kernel = dispatcher.matmul(LHS, RHS)
    oracle.check_matmul(out, LHS, RHS)
    assert kernel is not None
    assert kernel.target == V3
    (warning,) = capfd.readouterr().err.splitlines()
    assert warning.startswith("tf_tvm_ops: warning: an image of the pack ")
    assert V4 in warning

    image_of(pack, V3).unlink()
    assert_refused(good, pack, "none of its images holds a kernel for this machine")
    assert capfd.readouterr().err == ""


def test_image_of_another_size(tmp_path: Path, good: Path) -> None:
    pack = write_pack(tmp_path / "pack", {V3: GENERIC})
    with image_of(pack, V3).open("ab") as file:
        file.write(b"!")
    assert_refused(good, pack, r"has \d+ bytes, the manifest says \d+")


def not_elf(image: Path) -> None:
    image.write_bytes(b"not a library" * 100)


def without_one_symbol(image: Path) -> None:
    compile_image(GENERIC[:-1], image)


@pytest.mark.parametrize("replace", [not_elf, without_one_symbol])
def test_image_that_matches_its_checksum_but_is_wrong(
    tmp_path: Path, replace: Callable[[Path], None], capfd: Any
) -> None:
    pack = write_pack(tmp_path / "pack", {V3: GENERIC})
    image = image_of(pack, V3)
    replace(image)
    edit_manifest(pack, set_at(*IMAGE, "bytes", to=image.stat().st_size))
    edit_manifest(pack, set_at(*IMAGE, "sha256", to=_native.sha256(image.read_bytes())))
    assert_fails_once(pack, capfd)


def assert_fails_once(pack: Path, capfd: Any) -> str:
    """Assert that the image is opened late, fails, and is reported once and never used."""
    dispatcher = _native.Dispatcher()
    dispatcher.load_pack(pack)
    assert capfd.readouterr().err == ""
    for _ in range(3):
        with pytest.raises(LookupError, match=r": image$"):
            dispatcher.matmul(LHS, RHS)
    kernel = dispatcher.find(None, None, None)
    assert kernel is not None
    assert not kernel.ready()
    (warning,) = capfd.readouterr().err.splitlines()
    assert warning.startswith("tf_tvm_ops: warning: image ")
    assert str(image_of(pack, V3)) in warning
    return str(warning)


@pytest.mark.parametrize("part", [0, 0.3, 0.6, 0.999])
def test_flipped_byte_of_an_image(tmp_path: Path, part: float, capfd: Any) -> None:
    pack = write_pack(tmp_path / "pack", {V3: GENERIC})
    image = image_of(pack, V3)
    flip_byte(image, int(part * image.stat().st_size))
    assert "its SHA-256 is" in assert_fails_once(pack, capfd)


def remove(image: Path) -> None:
    image.unlink()


def truncate(image: Path) -> None:
    image.write_bytes(image.read_bytes()[:1000])


@pytest.mark.parametrize(
    ("change", "reason"),
    [(remove, "No such file or directory"), (truncate, "it has 1000 bytes, the manifest says ")],
)
def test_image_changed_after_loading(
    tmp_path: Path, change: Callable[[Path], None], reason: str, capfd: Any
) -> None:
    pack = write_pack(tmp_path / "pack", {V3: GENERIC})
    dispatcher = _native.Dispatcher()
    dispatcher.load_pack(pack)
    change(image_of(pack, V3))
    with pytest.raises(LookupError, match=r": image$"):
        dispatcher.matmul(LHS, RHS)
    assert reason in capfd.readouterr().err


def test_the_next_best_image_serves_when_one_fails(tmp_path: Path, good: Path, capfd: Any) -> None:
    """First that of the next target of the same pack, then that of the next pack."""
    pack = both_targets(tmp_path / "pack")
    flip_byte(image_of(pack, V4), 1000)
    dispatcher = _native.Dispatcher()
    dispatcher.load_pack(good)
    dispatcher.load_pack(pack)
    out, kernel = dispatcher.matmul(LHS, RHS)
    oracle.check_matmul(out, LHS, RHS)
    assert kernel is not None
    assert (kernel.pack, kernel.target) == (str(pack), V3)

    other = both_targets(tmp_path / "other")
    flip_byte(image_of(other, V4), 1000)
    flip_byte(image_of(other, V3), 1000)
    dispatcher.load_pack(other)
    for _ in range(2):
        out, kernel = dispatcher.matmul(LHS, RHS)
        oracle.check_matmul(out, LHS, RHS)
        assert kernel is not None
        assert (kernel.pack, kernel.target) == (str(pack), V3)
    # A plain lookup passes over what is known to have failed, too.
    found = dispatcher.find(None, None, None)
    assert found is not None
    assert found.pack == str(pack)
    assert len(capfd.readouterr().err.splitlines()) == 3


def test_one_kernel_missing_from_the_better_image(tmp_path: Path) -> None:
    """Targets are compared per problem."""
    only_v3 = FakeKernel((3, 4, 5))
    pack = write_pack(tmp_path, {V4: GENERIC, V3: (*GENERIC, only_v3)})
    dispatcher = _native.Dispatcher()
    assert dispatcher.load_pack(pack).kernels == len(GENERIC) + 1
    fixed, generic = dispatcher.find(3, 4, 5), dispatcher.find(None, None, None)
    assert fixed is not None
    assert generic is not None
    assert (fixed.target, generic.target) == (V3, V4)
