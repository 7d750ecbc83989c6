"""Files that are there, whole, after the power fails; and what is said where they cannot be written."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformer.errors import EnvironmentFailed


def sync(path: Path) -> None:
    """Brings a file's bytes, or a directory's names, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_file(path: Path, data: bytes) -> None:
    """The old contents or the new, never part of either."""
    new = path.with_name(path.name + ".tmp")
    new.write_bytes(data)
    sync(new)
    new.replace(path)
    sync(path.parent)


@contextmanager
def trouble(path: Path) -> Iterator[None]:
    """What goes wrong with a file we write is the environment's fault."""
    try:
        yield
    except OSError as error:
        raise EnvironmentFailed(f"{error.filename or path}: {reason(error)}") from None


def reason(error: Exception) -> str:
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error)
    return "the disk is full" if full else getattr(error, "strerror", None) or str(error)
