"""What a child and its parent send each other: a line of JSON, and a safetensors file where there are arrays."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from parity.common.base.errors import ExternalModelError

_ARRAY = "\0array"
_KINDS = "biuf"
# A pipe takes 64 KiB from a parent whose child does not read; what is longer goes through a file.
_LINE_BYTES = 1 << 15


class Channel:
    """Packs values for the other side. Each side has one of its own; the files lie in one temporary folder."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self._folder = folder
        self._names = (f"{prefix}{number}" for number in itertools.count())

    def pack(self, value: Any) -> dict[str, Any]:
        """Plain JSON data for a value of dicts, lists, numbers, text and arrays; raises ExternalModelError for others."""
        arrays: dict[str, np.ndarray[Any, Any]] = {}
        message: dict[str, Any] = {"value": _out(value, arrays, "")}
        if arrays:
            path = self._folder / f"{next(self._names)}.safetensors"
            save_file(arrays, path)
            message["arrays"] = path.name
        return message

    def question(self, name: str, arguments: dict[str, Any]) -> bytes:
        """A line that asks a question; raises as `pack`."""
        line = json.dumps({"do": name, **self.pack(arguments)}).encode()
        if len(line) > _LINE_BYTES:
            path = self._folder / f"{next(self._names)}.json"
            path.write_bytes(line)
            line = json.dumps({"file": path.name}).encode()
        return line + b"\n"

    def asked(self, line: str) -> tuple[str, dict[str, Any]]:
        """The name of the question in a line of the other side, and its arguments."""
        message = json.loads(line)
        if "file" in message:
            path = self._folder / message["file"]
            message = json.loads(path.read_bytes())
            path.unlink()
        return message["do"], self.unpack(message)

    def unpack(self, message: dict[str, Any]) -> Any:
        """The value of what the other side packed, whose file is gone afterwards.

        Raises ExternalModelError where the arrays cannot be read.
        """
        arrays: dict[str, np.ndarray[Any, Any]] = {}
        if "arrays" in message:
            path = self._folder / message["arrays"]
            try:
                arrays = load_file(path)
            except (OSError, SafetensorError) as error:
                raise ExternalModelError(
                    f"{path}: arrays of the other process cannot be read: {error}"
                ) from None
            path.unlink()
        return _in(message["value"], arrays)


def _out(value: Any, arrays: dict[str, np.ndarray[Any, Any]], where: str) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in _KINDS:
            raise ExternalModelError(
                f"{where or 'the array'} has the type {value.dtype}; give numbers, integers or booleans"
            )
        key = str(len(arrays))
        native = value.astype(value.dtype.newbyteorder("="), copy=False)
        arrays[key] = native if native.flags.c_contiguous else native.copy()
        return {_ARRAY: key}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {str(key): _out(item, arrays, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_out(item, arrays, where) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ExternalModelError(
        f"{where or 'the value'}: a {type(value).__name__} cannot be sent to another process"
    )


def _in(value: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, list):
        return [_in(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if _ARRAY in value:
        return arrays[value[_ARRAY]]
    return {key: _in(item, arrays) for key, item in value.items()}
