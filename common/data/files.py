"""Files of samples: where they are, what they hash to, and one line where they are not as they should be."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from parity.common.base.errors import SpecError
from parity.common.base.files import naming_os_errors, sha256_of
from parity.common.data.samples import Array
from parity.common.spec.sources import Npz, TableFile, Tokens


def located(path: str) -> Path:
    """The place of a spec's path: below $PARITY_DATA, else the working folder, unless absolute."""
    return Path(os.environ.get("PARITY_DATA", "")) / Path(path).expanduser()


def present(path: Path, how: str, folder: bool = False) -> Path:
    """Return `path`, which must be a file, or a folder.

    Raises:
        SpecError: there is none; `how` says how to get it.
    """
    if not (path.is_dir() if folder else path.is_file()):
        what = f"is no {'folder' if folder else 'file'}" if path.exists() else "is missing"
        raise SpecError(f"data: {path} {what}; {how}")
    return path


def files_of_one(source: Npz | TableFile | Tokens) -> dict[str, Path]:
    """The file of a source, and that of the test samples."""
    how = f"give the path of a {'table' if isinstance(source, TableFile) else 'file'} that you have"
    path = present(located(source.path), how)
    files = {path.name: path}
    if source.test_path is not None:
        files["test/" + Path(source.test_path).name] = present(located(source.test_path), how)
    return files


def hash_of_files(files: Mapping[str, Path]) -> str:
    """SHA-256 over the names, sizes and contents of files."""
    total = hashlib.sha256()
    for name, path in sorted(files.items()):
        total.update(f"{name}\0{path.stat().st_size}\0{hash_of(path)}\n".encode())
    return total.hexdigest()


def hash_of_arrays(arrays: Sequence[Array]) -> str:
    """SHA-256 over types, shapes and contents."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(f"{array.dtype.str}{array.shape}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def hash_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits; computed once a process, unless size or time change.

    Raises:
        SpecError: the file cannot be read.
    """
    with naming_os_errors(SpecError, f"data: {path} cannot be read"):
        facts = path.stat()
        return _hash(str(path.resolve()), facts.st_size, facts.st_mtime_ns)


@functools.lru_cache(maxsize=1 << 20)
def _hash(path: str, size: int, time: int) -> str:
    del size, time  # parts of the key: another file
    return sha256_of(path)


def check_pin(pin: str | None, digest: str, files: Mapping[str, Path]) -> None:
    """Raise SpecError unless `pin` is the digest, or the hash of the only file."""
    if pin is None or pin == digest:
        return
    single = [hash_of(path) for path in files.values()] if len(files) == 1 else []
    if pin not in single:
        raise SpecError(
            f"data: source.sha256 is {pin}, but the files hash to {(single or [digest])[0]}; other data?"
        )
