"""How the failure of a rank becomes one line: its own error, what took it along, and how far the run had come."""

from __future__ import annotations

import json
import platform
import re
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path

from parity.common.base.errors import ParityError, RunError, StoppedError
from parity.common.execution.process_context import process_context, starts_ranks
from parity.common.execution.processes.child import last_line
from parity.common.execution.processes.user_errors import described
from parity.common.record.header import steps_in
from parity.common.spec import Placement

# Characters of an error, so that it is short enough to be written at once.
_LONGEST = 600
# What gloo says of a peer, in exceptions that are no others than Python's: '[.../gloo/transport/tcp/pair.cc:534] ...'.
_GLOO = re.compile(r"(?:^|failed with )\[\S*gloo/\S+\.(?:cc|h):\d+\] ")
# Which of its two words for being late it says depends on what it was at.
_GLOO_LATE = re.compile(r"Application timeout|Timed out waiting \d+ms for \w+ operation")
# What a rank says, in its framework's words or ours, that has waited for another in vain.
LATE = re.compile(r"Application timeout|Timed out waiting|timed out waiting|waited \d+ s in a collective")


def reached(record: Path) -> str:
    """'; last recorded step: 41' of a run that ends early; nothing, where it has recorded none."""
    steps = steps_in(record / "steps.f64")
    return f"; last recorded step: {steps - 1}" if steps else ""


def lost_peer(error: Exception, kinds: type[Exception], timeout_seconds: int) -> str | None:
    """Return what an error says of another rank that has gone or never came; None for an error of this rank's own.

    Args:
        error: of a collective, perhaps. Gloo has no exception of its own; an error that only mentions gloo is none.
        kinds: the framework's own exceptions for it.
        timeout_seconds: of a collective.
    """
    text = str(error)
    if not isinstance(error, kinds) and not (type(error) is RuntimeError and _GLOO.search(text)):
        return None
    if _GLOO_LATE.search(text):
        return f"waited {timeout_seconds} s in a collective for another rank"
    # Without the place in gloo's sources, and its advice.
    return re.sub(r"^\[[^]]*\] |\. This is typically.*", "", text.splitlines()[0]).rstrip(".")


def log_of(log_dir: Path, rank: int) -> Path:
    """Return the file that a rank's output goes to."""
    return log_dir / f"rank_{rank}.log"


def report(failures: Connection, rank: int, error: BaseException) -> int:
    """Send the process that started this rank why it ends, write that into the log, and return the exit code."""
    foreseen = isinstance(error, ParityError)
    text = str(error) if foreseen else described(error)
    failures.send_bytes(json.dumps((rank, time.time(), text[:_LONGEST]), ensure_ascii=False).encode())
    with suppress(OSError):
        print(error, file=sys.stderr) if foreseen else traceback.print_exc()
    return StoppedError.exit_code if isinstance(error, StoppedError) else 1


class Failures:
    """Why ranks have failed. It comes over a pipe, so that a full disk does not lose it."""

    def __init__(self, reader: Connection, log_dir: Path) -> None:
        self._reader, self._log_dir = reader, log_dir
        self._known: dict[int, tuple[float, str]] = {}

    def read(self) -> None:
        """Take what has come."""
        while self._reader.poll(0):
            rank, when, text = json.loads(self._reader.recv_bytes())
            self._known[rank] = when, text

    def time(self, rank: int) -> float:
        """When a rank failed, or fell silent, in seconds since the epoch."""
        if rank in self._known:
            return self._known[rank][0]
        try:
            return log_of(self._log_dir, rank).stat().st_mtime
        except OSError:
            return 0.0

    def text(self, rank: int) -> str:
        """The error of a rank, or else the last line of its log."""
        return self._known[rank][1] if rank in self._known else last_line(log_of(self._log_dir, rank))

    def said(self, rank: int) -> str:
        """As `text`, and where the log is."""
        return f"{self.text(rank)} (log: {log_of(self._log_dir, rank)})"


@contextmanager
def lost_workers(
    placement: Placement, record: Path, kinds: tuple[type[Exception], ...], late: type[Exception]
) -> Iterator[None]:
    """Around a TensorFlow process's part of a run: a peer that has gone, or is silent, ends it with one line.

    kinds: TensorFlow's exceptions for it. late: that of them for a peer that is silent.

    Raises:
        RunError: names this rank, the peer where TensorFlow knows it, and the last step of the run's record.
    """
    try:
        yield
    except kinds as error:
        if placement.processes == 1:
            raise
        said = str(error)
        peer = re.search(r"/job:worker/(?:replica:0/)?task:(\d+)", said)
        silent = isinstance(error, late)
        what = f"waited {placement.timeout_seconds} s in a collective for" if silent else "lost"
        cause = re.search(
            r"(Collective ops is aborted by|Collective has timed out|recvmsg|Socket)[^\n]*", said
        )
        raise RunError(
            f"rank {process_context(placement).rank} on {socket.gethostname()} {what}"
            f" {f'rank {peer[1]}' if peer else 'the other ranks'} ({cause[0] if cause else type(error).__name__})"
            f"{'' if starts_ranks(placement) else reached(record)}; the first rank to fail says why"
        ) from None


def of_launched_rank(
    error: Exception, placement: Placement, record: Path, kinds: type[Exception]
) -> RunError | None:
    """Return the one line of a PyTorch rank that a launcher has started and whose peer has gone; None as `lost_peer`."""
    said = lost_peer(error, kinds, placement.timeout_seconds)
    if said is None:
        return None
    place = process_context(placement)
    return RunError(
        f"rank {place.rank} of {place.processes}, met at {place.meeting_point}: {said}; host:"
        f" {platform.node()}{reached(record)}; the first rank to fail says why"
    )
