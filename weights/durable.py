"""Files that are there, whole, after the power fails."""

from __future__ import annotations

import os
from pathlib import Path


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
