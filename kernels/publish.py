"""Putting a pack in place: whole or not at all, whatever happens on the way."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import filelock

from . import manifest as manifest_format
from .manifest import FILE_NAME, IMAGE_PATTERN, Manifest, ManifestError

_STAGE_AGE_SECONDS = 60.0


class PublishError(OSError):
    """A pack that could not be written; the message says where and why. Nothing was changed."""


def check_writable(pack: Path) -> None:
    """Refuse early what :func:`publish` could not write.

    Raises
    ------
    PublishError
        If the folder is something else than a pack, or cannot be written.
    """
    if pack.exists() and not pack.is_dir():
        raise PublishError(f"{pack}: is a file; expected a folder for the pack, or a new name")
    if pack.is_dir() and not (pack / FILE_NAME).exists() and any(pack.iterdir()):
        raise PublishError(f"{pack}: holds other files and no manifest; choose an empty folder")
    folder = pack if pack.is_dir() else pack.parent
    with _plain_errors(pack):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()


def publish(pack: Path, manifest: Manifest, files: Mapping[str, Path]) -> None:
    """Write the images and then the manifest of a pack.

    A reader sees the old pack or the new one. Images of the pack that is replaced stay until the
    next time, for processes that read its manifest and have not opened them yet.

    Parameters
    ----------
    pack
        The folder.
    manifest
        What it is to say.
    files
        For each image's name, the file to copy.

    Raises
    ------
    PublishError
        If writing failed; the pack is as it was before.
    """
    with _plain_errors(pack):
        if not pack.exists() and _publish_new(pack, manifest, files):
            return
        pack.mkdir(exist_ok=True)
        with filelock.FileLock(pack / ".lock"):
            _publish_into(pack, manifest, files)


def _publish_new(pack: Path, manifest: Manifest, files: Mapping[str, Path]) -> bool:
    """Stage a new folder beside ``pack`` and rename it; False if another one came first."""
    _remove_abandoned(pack)
    stage = Path(tempfile.mkdtemp(prefix=f".{pack.name}.", suffix=".stage", dir=pack.parent))
    try:
        with filelock.FileLock(stage / ".lock"):
            stage.chmod(0o777 & ~_umask())
            _write_all(stage, manifest, files)
            try:
                os.rename(stage, pack)
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    return False
                raise
        _sync(pack.parent)
        return True
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _publish_into(pack: Path, manifest: Manifest, files: Mapping[str, Path]) -> None:
    try:
        previous = {image.file for image in manifest_format.load(pack).images}
    except ManifestError:
        previous = set()
    for leftover in pack.glob(".*.part"):
        leftover.unlink()
    new = {name for name in files if not (pack / name).exists()}
    try:
        _write_all(pack, manifest, files)
    except BaseException:
        for name in new - previous:
            (pack / name).unlink(missing_ok=True)
        raise
    for path in pack.iterdir():
        stale = path.name not in files and path.name not in previous
        if stale and IMAGE_PATTERN.fullmatch(path.name):
            path.unlink()


def _write_all(folder: Path, manifest: Manifest, files: Mapping[str, Path]) -> None:
    for name, source in files.items():
        _write(folder / name, source.read_bytes(), 0o777)
    _write(folder / FILE_NAME, manifest.dump().encode(), 0o666)
    _sync(folder)


def _write(path: Path, content: bytes, mode: int) -> None:
    descriptor, name = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode & ~_umask())
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _remove_abandoned(pack: Path) -> None:
    """Remove what generators that were killed left beside ``pack``.

    Nobody holds the lock of such a folder. A new one whose owner is about to take the lock is told
    by its age.
    """
    for stage in pack.parent.glob(f".{pack.name}.*.stage"):
        try:
            if time.time() - stage.stat().st_mtime > _STAGE_AGE_SECONDS:
                with filelock.FileLock(stage / ".lock", timeout=0):
                    shutil.rmtree(stage, ignore_errors=True)
        except (filelock.Timeout, OSError):
            continue


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def _plain_errors(pack: Path) -> Iterator[None]:
    try:
        yield
    except PublishError:
        raise
    except OSError as error:
        hint = {
            errno.ENOSPC: "free some space",
            errno.EDQUOT: "free some of your quota",
            errno.EACCES: "choose a folder that you may write to",
            errno.EPERM: "choose a folder that you may write to",
            errno.EROFS: "choose a folder on a writable file system",
        }.get(error.errno or 0, "choose another folder")
        raise PublishError(f"{pack}: cannot write: {error.strerror or error}; {hint}") from error
