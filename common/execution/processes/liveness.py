"""Whether a process still gets on, and where it is if not."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import time
from pathlib import Path

from parity.common.base.package import ROOT
from parity.common.execution.processes.user_errors import place_of

# A training that records nothing for so long is ended. Long, since compiling or an evaluation records nothing.
SILENT_SECONDS = 3600.0
# Who starts a process that has the same limit for its own children waits longer, since that one can say more.
OUTER = 1.1
# Not SIGUSR1, by which a training is asked to save and stop.
STACK_SIGNAL = signal.SIGUSR2
_REPORT_SECONDS = 2.0
_FRAME = re.compile(r'File "(.+)", line (\d+)')


def silence_limit(timeout_seconds: float | None) -> float:
    """Seconds for which a training may record nothing: an hour, or ten times its `timeout_seconds` where that is more."""
    return max(SILENT_SECONDS, 10.0 * (timeout_seconds or 0.0))


def growth(folder: Path) -> tuple[int, int, int]:
    """Return what changes while files are written under a folder: their number, sizes and latest time."""
    number = size = latest = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                found = os.stat(os.path.join(parent, name))
            except OSError:
                continue  # a temporary file that has gone
            number, size, latest = number + 1, size + found.st_size, max(latest, found.st_mtime_ns)
    return number, size, latest


def report_stacks() -> None:
    """From now on, STACK_SIGNAL has this process write the stacks of its threads where its errors go now."""
    faulthandler.register(STACK_SIGNAL, os.dup(2))


def whereabouts(pid: int, log: Path) -> str:
    """Return ', it is at (models.py:12)' of a process that does not answer; '' where it does not say.

    Args:
        pid: of a process that has called `report_stacks`; the signal ends any other.
        log: where that process writes its errors.
    """
    try:
        size = log.stat().st_size
        os.kill(pid, STACK_SIGNAL)
    except OSError:
        return ""
    deadline = time.monotonic() + _REPORT_SECONDS
    said = ""
    while time.monotonic() < deadline and not said.endswith("\n"):
        time.sleep(0.05)
        said = log.read_bytes()[size:].decode(errors="replace")
    place = _innermost(said)
    return f", it is at{place}" if place else ""


def _innermost(report: str) -> str:
    """' (file.py:12)' of the user's code in a report of faulthandler, else of ours, in the main thread first."""
    # The main thread comes last, and the innermost frame of each first.
    threads = [
        [(name, int(line)) for name, line in _FRAME.findall(thread)][::-1]
        for thread in reversed(report.split("\n\n"))
    ]
    users = next(filter(None, map(place_of, threads)), "")
    mine = ROOT / "parity"
    ours = [(name, line) for name, line in (threads[0] if threads else []) if Path(name).is_relative_to(mine)]
    if users or not ours:
        return users
    name, line = ours[-1]
    return f" ({Path(name).relative_to(mine)}:{line})"
