"""What children do in the tests of how they are asked and ended; none of them knows a framework."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from parity.common.base.errors import SpecError
from parity.common.execution.processes.service import Service

FOREVER = 1000.0


class Plain(Service):
    """Answers."""

    def __init__(self, *arguments: str) -> None:
        self.arguments = arguments

    def echo(self, value: Any) -> Any:
        print("this is no answer")
        return value

    def imported(self, name: str) -> str:
        """Where a module comes from."""
        return str(__import__(name).__file__)

    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    def refuses(self) -> None:
        raise SpecError("42 is not allowed")

    def raises(self, text: str = "first line\nsecond line") -> None:
        raise ValueError(text)

    def sleeps(self) -> None:
        time.sleep(FOREVER)

    def says(self, text: str, then_sleeps: bool = True) -> None:
        print(text, file=sys.stderr, flush=True)
        time.sleep(FOREVER if then_sleeps else 0)

    def grows(self, path: str, pause: float, times: int) -> str:
        """Write to a file at each of some moments."""
        for _ in range(times):
            time.sleep(pause)
            with open(path, "a") as file:
                file.write("x")
        return Path(path).read_text()

    def starts(self, path: str) -> None:
        """Start a process, leave its id, and hang."""
        child = os.fork()
        if child == 0:
            time.sleep(FOREVER)
        Path(path).write_text(str(child))
        time.sleep(FOREVER)


class Broken(Plain):
    """Cannot be asked anything."""

    def describe(self) -> None:
        raise ImportError("no libcuda [x]")


class Dies(Plain):
    def describe(self) -> None:
        print("last words [y]", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


class Hangs(Plain):
    def describe(self) -> None:
        # As a framework does that waits for its device.
        self.sleeps()
