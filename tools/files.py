"""Files that commands write: whole or not at all."""

from __future__ import annotations

import tempfile
from pathlib import Path


def check_writable(path: Path) -> None:
    """Refuse early what :func:`publish` could not write.

    Raises
    ------
    ValueError
        If its folder is missing or cannot be written, or the name is that of a folder.
    """
    if path.is_dir():
        raise ValueError(f"{path}: is a folder; expected the name of a file")
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise ValueError(
            f"{path}: cannot be written ({error.strerror}); name a file in a folder that exists "
            "and that you may write to"
        ) from error


def publish(path: Path, content: bytes) -> None:
    """Write beside the final place, then rename: a file that exists is whole.

    Raises
    ------
    ValueError
        If that fails.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ValueError(f"{path}: cannot be written ({error.strerror})") from error
