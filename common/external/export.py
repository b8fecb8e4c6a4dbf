"""Export to a framework's own formats, in a process of that framework."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from parity.common.base.errors import RunError
from parity.common.base.package import MODULES
from parity.common.execution.processes.child import Child
from parity.common.execution.processes.service import Service
from parity.common.execution.worker import require
from parity.common.spec.strategies import Framework

# Reading or writing a file of weights may take so long.
SECONDS = 3600.0
# Format -> the framework that writes it, and how its files are called.
FORMATS: dict[str, tuple[Framework, tuple[str, ...]]] = {
    "keras": ("tensorflow", (".keras",)),
    "state_dict": ("torch", (".pt", ".pth")),
    "safetensors": ("torch", (".safetensors",)),
    "dcp": ("torch", (".dcp",)),
}


def convert(path: Path, kind: str, out: Path) -> dict[str, Any]:
    """Have `out` written from a run or a checkpoint; returns what the framework's `convert.export` does.

    Raises:
        ParityError: the framework is not installed, or cannot do it, in one line.
    """
    framework = FORMATS[kind][0]
    require(framework)
    with Child(f"{__name__}:Exports", framework, name=f"the {framework} process") as child:
        arguments = {"path": str(path), "kind": kind, "out": str(out)}
        answer: dict[str, Any] = child.ask("export", arguments, SECONDS)
    return answer


class Exports(Service):
    """The child's side."""

    def __init__(self, framework: Framework) -> None:
        self._framework = framework

    def export(self, path: str, kind: str, out: str) -> dict[str, Any]:
        self.about = path
        module = importlib.import_module(f"{MODULES[self._framework]}.convert")
        try:
            written: dict[str, Any] = module.export(Path(path), kind, Path(out))
        except OSError as error:
            raise RunError(f"{out}: cannot be written: {error.strerror or error}") from None
        return written
