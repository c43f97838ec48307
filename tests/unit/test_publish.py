"""Packs appear whole or not at all: kernels/publish.py, kernels/manifest.py."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import time
from pathlib import Path

import pytest

from tf_tvm_ops.kernels import manifest as manifest_format
from tf_tvm_ops.kernels.manifest import (
    FILE_NAME,
    ImageEntry,
    KernelEntry,
    Manifest,
    ManifestError,
    file_sha256,
    image_name,
)
from tf_tvm_ops.kernels.problem import Problem
from tf_tvm_ops.kernels.publish import PublishError, check_writable, publish


def content(folder: Path, text: str, size: int = 10_000) -> tuple[Manifest, dict[str, Path]]:
    """A manifest with one image, whose bytes are made of ``text``."""
    source = folder / f"source-{text}"
    source.write_bytes((text * size)[:size].encode())
    sha256 = file_sha256(source)
    name = image_name("cpu:x86-64-v3", sha256)
    kernel = KernelEntry(f"bmm_{text}", Problem(1, 2, 3), {"rule": "r"}, 0)
    image = ImageEntry("cpu:x86-64-v3", name, size, sha256, (kernel,))
    return Manifest(1, {"tf_tvm_ops": text}, (image,)), {name: source}


def assert_whole(pack: Path) -> Manifest:
    manifest = manifest_format.load(pack)
    for image in manifest.images:
        assert file_sha256(pack / image.file) == image.sha256
    return manifest


def leftovers(folder: Path) -> list[str]:
    hidden = {p.name for p in folder.rglob(".*")} - {".lock"}
    return sorted(hidden)


def test_new_pack(tmp_path):
    manifest, files = content(tmp_path, "a")
    pack = tmp_path / "pack"
    publish(pack, manifest, files)
    assert assert_whole(pack) == manifest
    assert sorted(p.name for p in pack.iterdir() if p.name != ".lock") == sorted(
        [FILE_NAME, *files]
    )
    assert leftovers(tmp_path) == []


def test_replacing_keeps_what_readers_of_the_old_pack_may_still_open(tmp_path):
    pack = tmp_path / "pack"
    made = [content(tmp_path, text) for text in "abc"]
    for manifest, files in made:
        publish(pack, manifest, files)
        assert assert_whole(pack) == manifest
    images = {p.name for p in pack.glob("*.so")}
    assert images == set(made[1][1]) | set(made[2][1])


def test_other_files_are_left_alone(tmp_path):
    pack = tmp_path / "pack"
    publish(pack, *content(tmp_path, "a"))
    (pack / "notes.so").write_text("mine")
    publish(pack, *content(tmp_path, "b"))
    publish(pack, *content(tmp_path, "c"))
    assert (pack / "notes.so").read_text() == "mine"


@pytest.mark.parametrize("existing", [False, True])
def test_failing_write_changes_nothing(tmp_path, existing):
    """A file size limit makes the operating system refuse the second half of the image."""
    pack = tmp_path / "packs" / "pack"
    pack.parent.mkdir()
    before = None
    if existing:
        before, files = content(tmp_path, "a")
        publish(pack, before, files)
    manifest, files = content(tmp_path, "b", size=100_000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(PublishError, match=r"pack: cannot write: File too large; choose"):
            publish(pack, manifest, files)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert leftovers(pack.parent) == []
    if existing:
        assert assert_whole(pack) == before
        assert len(list(pack.glob("*.so"))) == 1
    else:
        assert not pack.exists()


def test_full_disk_is_said_plainly(tmp_path, monkeypatch):
    manifest, files = content(tmp_path, "a")

    def no_space(descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(PublishError, match="No space left on device; free some space"):
        publish(tmp_path / "pack", manifest, files)
    assert not (tmp_path / "pack").exists()


def _publish_forever(folder: Path, pack: Path, text: str) -> None:
    manifest, files = content(folder, text, size=200_000)
    other, other_files = content(folder, text * 2, size=200_000)
    while True:
        publish(pack, manifest, files)
        publish(pack, other, other_files)


@pytest.mark.parametrize("existing", [False, True])
def test_killed_and_concurrent_writers_leave_whole_packs(tmp_path, existing):
    pack = tmp_path / "packs" / "pack"
    pack.parent.mkdir()
    if existing:
        publish(pack, *content(tmp_path, "z"))
    context = multiprocessing.get_context("fork")
    for round_number in range(6):
        writers = [
            context.Process(target=_publish_forever, args=(tmp_path, pack, text)) for text in "abcd"
        ]
        for writer in writers:
            writer.start()
        deadline = time.monotonic() + 0.15 + 0.05 * round_number
        while time.monotonic() < deadline:
            if pack.exists():
                manifest_format.load(pack)
        for writer in writers:
            assert writer.is_alive()
            os.kill(writer.pid or 0, signal.SIGKILL)
            writer.join()
        if pack.exists():
            assert_whole(pack)
    publish(pack, *content(tmp_path, "last"))
    assert assert_whole(pack).made_with == {"tf_tvm_ops": "last"}
    assert not list(pack.glob(".*.part"))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda pack: pack.write_text("x"), "is a file"),
        (lambda pack: (pack.mkdir(), (pack / "x").write_text("x")), "holds other files"),
    ],
    ids=["file", "folder"],
)
def test_something_else_in_the_way(tmp_path, make, words):
    pack = tmp_path / "pack"
    make(pack)
    with pytest.raises(PublishError, match=words):
        check_writable(pack)


def test_unwritable_place():
    with pytest.raises(PublishError, match=r"cannot write: .*; choose another folder"):
        check_writable(Path("/dev/null/pack"))


def test_dump_is_stable_and_loads_again(tmp_path):
    manifest, _ = content(tmp_path, "a")
    (tmp_path / FILE_NAME).write_text(manifest.dump())
    assert manifest_format.load(tmp_path) == manifest
    assert manifest_format.load(tmp_path).dump() == manifest.dump()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "incomplete"),
        ("{}", "schema"),
        ('{"schema": 99}', "schema 99, expected 1"),
        ('{"schema": 1, "abi": 1, "made_with": {}, "images": [{}]}', "target"),
    ],
)
def test_unusable_manifest(tmp_path, text, words):
    (tmp_path / FILE_NAME).write_text(text)
    with pytest.raises(ManifestError, match=words):
        manifest_format.load(tmp_path)
