"""Files that are whole or not there."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parity.common.base.errors import ParityError


def partial_of(path: Path) -> Path:
    """What a file or folder is called until all of it is there."""
    return path.with_name(f"{path.name}.partial")


@contextmanager
def naming_os_errors(kind: type[ParityError], what: str) -> Iterator[None]:
    """Raise `kind` for an OSError within it, in one line: 'WHAT: No such file or directory'."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {error.strerror or error}") from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives a path to write to, a file or a new folder, which becomes `path` once all is written. Where that fails, `path` is as it was.

    The name is the file's own, so that several processes may write into one folder at once. A device (/dev/null) is
    written to as it is.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        yield path
        return
    temporary = partial_of(path)
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        # What a full disk does not take has lost its name.
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary)
        else:
            temporary.unlink(missing_ok=True)


def sha256_of(path: str | Path) -> str:
    """The SHA-256 of a file, in hexadecimal; of a file of any size, a piece at a time."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def numbered_folders(parent: Path) -> list[Path]:
    """Return the sub-folders in the order of the numbers in their names; none where the folder is missing."""
    if not parent.is_dir():
        return []
    return sorted((p for p in parent.iterdir() if p.is_dir()), key=lambda p: (_number(p.name), p.name))


def _number(name: str) -> int:
    found = re.search(r"\d+", name)
    return int(found.group()) if found else 0


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object's contents, for `object_pairs_hook`; raises ValueError for a key that is given twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found
