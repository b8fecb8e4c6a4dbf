"""Temporary folders. What a killed process leaves of them, the next process of the same user removes."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "parity-"
# A file in each folder that its process holds a lock on for as long as it lives.
_OWNER = ".owner"
_HELD: dict[Path, int] = {}
_SWEPT: list[bool] = []


@contextmanager
def scratch_folder(purpose: str = "") -> Iterator[Path]:
    """Give a new temporary folder, which is removed at the end."""
    folder = make_scratch(purpose)
    try:
        yield folder
    finally:
        remove_scratch(folder)


def make_scratch(purpose: str = "") -> Path:
    """Return a new temporary folder, which is removed when this process ends, or by `remove_scratch`.

    The first one of a process also removes those that are left of this user's processes that were killed.
    """
    if not _SWEPT:
        _SWEPT.append(True)
        atexit.register(_remove_all)
        sweep(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{purpose}"))
    # Under its name only once it is locked: else it could be taken for one that was left.
    handle = os.open(folder / f"{_OWNER}.new", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    with suppress(OSError):  # a file system without locks: it is then never swept
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.rename(folder / f"{_OWNER}.new", folder / _OWNER)
    _HELD[folder] = handle
    return folder


def remove_scratch(folder: Path) -> None:
    """Remove a folder of `make_scratch`, where it has not been removed."""
    shutil.rmtree(folder, ignore_errors=True)
    _let_go(folder)


def contents_of(folder: Path) -> list[Path]:
    """What has been put into a folder of `make_scratch`."""
    return [path for path in folder.iterdir() if path.name != _OWNER]


def keep_scratch(folder: Path) -> None:
    """Leave a folder of `make_scratch` where it is, for a person: nothing will remove it."""
    (folder / _OWNER).unlink(missing_ok=True)
    _let_go(folder)


def sweep(parent: Path) -> None:
    """Remove this user's folders of `make_scratch` in `parent` whose processes have gone."""
    with suppress(OSError):
        for entry in list(os.scandir(parent)):
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False):
                _sweep(Path(entry.path))


def _sweep(folder: Path) -> None:
    handle = None
    try:
        if os.lstat(folder).st_uid != os.geteuid():
            return
        handle = os.open(folder / _OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        if stat.S_ISREG(os.fstat(handle).st_mode):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        pass  # its process lives, or it is none of ours
    finally:
        if handle is not None:
            os.close(handle)


def _let_go(folder: Path) -> None:
    handle = _HELD.pop(folder, None)
    if handle is not None:
        os.close(handle)


def _remove_all() -> None:
    for folder in list(_HELD):
        remove_scratch(folder)
