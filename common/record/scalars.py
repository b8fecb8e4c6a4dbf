"""TensorBoard's files, by tensorboard's own writer: no framework is loaded for them."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from parity.common.base.errors import MissingPackageError, how_to_install


class EventWriter:
    """A new file of events in a folder. A scalar is float32 in it: 24 bits of what is given, infinite above 3.4e38.

    Raises:
        MissingPackageError: tensorboard is not installed.
    """

    def __init__(self, folder: Path) -> None:
        # Where this can be imported, tensorboard leaves TensorFlow alone; else it would load it, beside torch as well.
        name = "tensorboard.compat.notf"
        sys.modules.setdefault(name, ModuleType(name))
        try:
            self._event: Any = importlib.import_module("tensorboard.compat.proto.event_pb2").Event
            self._summary: Any = importlib.import_module("tensorboard.compat.proto.summary_pb2").Summary
            writer = importlib.import_module("tensorboard.summary.writer.event_file_writer")
        except ImportError:
            raise MissingPackageError(
                f"files for TensorBoard need tensorboard; {how_to_install('tensorboard')}"
            ) from None
        self._writer: Any = writer.EventFileWriter(str(folder))

    def step(self, step: int, values: Mapping[str, float], at: float | None = None) -> None:
        """Write one step's scalars; `at`: seconds since 1970, for its axis of time [now]."""
        with np.errstate(over="ignore"):
            scalars = {name: float(np.float32(value)) for name, value in values.items()}
        given = [self._summary.Value(tag=name, simple_value=value) for name, value in scalars.items()]
        self._add(self._summary(value=given), step, at)

    def text(self, name: str, markdown: str, at: float | None = None) -> None:
        """Write a text, shown under its name."""
        made = importlib.import_module("tensorboard.plugins.text.summary_v2").text_pb(name, markdown)
        self._add(made, 0, at)

    def _add(self, summary: Any, step: int, at: float | None) -> None:
        now = time.time() if at is None else at
        self._writer.add_event(self._event(wall_time=now, step=step, summary=summary))

    def close(self) -> None:
        """Write what is left and close the file."""
        self._writer.close()
