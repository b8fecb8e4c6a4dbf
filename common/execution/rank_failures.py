"""How the failure of a rank becomes one line: its own error, what took it along, and how far the run had come."""

from __future__ import annotations

import json
import os
import platform
import re
import socket
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

from parity.common.base.errors import ParityError, RunError, StoppedError
from parity.common.base.plain import print_error
from parity.common.execution.process_context import process_context, starts_ranks
from parity.common.execution.processes.child import last_line
from parity.common.execution.processes.user_errors import described
from parity.common.record.header import steps_in
from parity.common.spec import Placement

# The pipe to the process that started this rank, and the rank; nothing in a process that a launcher has started.
_PIPE: list[tuple[Connection, int]] = []
# Characters of an error, so that it is short enough to be written at once.
_LONGEST = 600
# What gloo says of a peer, in exceptions that are no others than Python's: '[.../gloo/transport/tcp/pair.cc:534] ...'.
_GLOO = re.compile(r"(?:^|failed with )\[\S*gloo/\S+\.(?:cc|h):\d+\] ")
# Which of its two words for being late it says depends on what it was at.
_GLOO_LATE = re.compile(r"Application timeout|Timed out waiting \d+ms for \w+ operation")
# By how much a clock may be set right while ranks train.
_JUMP_SECONDS = 2.0
# What a rank says, in its framework's words or ours, that has waited for another in vain.
LATE = re.compile(
    r"Application timeout|Timed out waiting|timed out waiting|waited \d+ s in a collective"
    r"|it (?:sends no|does not answer) heartbeats"
)


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


def reports_to(failures: Connection, rank: int) -> None:
    """From now on `report` sends to this pipe, as the rank of this number."""
    _PIPE[:] = [(failures, rank)]


def report(error: BaseException) -> int:
    """Send the process that started this rank why it ends, write that into the log, and return the exit code."""
    ((failures, rank),) = _PIPE
    foreseen = isinstance(error, ParityError)
    text = str(error) if foreseen else described(error)
    failures.send_bytes(json.dumps((rank, time.monotonic(), text[:_LONGEST]), ensure_ascii=False).encode())
    with suppress(OSError):
        print_error(error) if foreseen else traceback.print_exc()
    return StoppedError.exit_code if isinstance(error, StoppedError) else 1


def failure_pipe() -> int | None:
    """The descriptor that `report` writes to, for a helper process of this rank; None where none was given."""
    return _PIPE[0][0].fileno() if _PIPE else None


def end_rank(error: ParityError) -> NoReturn:
    """End this process at once with one line, from any of its threads: to `run_ranks`, else on standard error."""
    if _PIPE:
        os._exit(report(error))
    print_error(f"parity: error: {error}")
    os._exit(error.exit_code)


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
        """When a rank failed, or fell silent, by the clock of `time.monotonic`, which never jumps."""
        if rank in self._known:
            return self._known[rank][0]
        try:
            return time.monotonic() - (time.time() - log_of(self._log_dir, rank).stat().st_mtime)
        except OSError:
            return 0.0

    def text(self, rank: int) -> str:
        """The error of a rank, or else the last line of its log."""
        return self._known[rank][1] if rank in self._known else last_line(log_of(self._log_dir, rank))

    def said(self, rank: int) -> str:
        """As `text`, and where the log is."""
        return f"{self.text(rank)} (log: {log_of(self._log_dir, rank)})"


@contextmanager
def lost_workers(placement: Placement, record: Path, kinds: tuple[type[Exception], ...]) -> Iterator[None]:
    """Around a TensorFlow process's part of a run: a peer that has gone, or is silent, ends it with one line.

    kinds: TensorFlow's exceptions for it.

    Raises:
        RunError: names this rank, the peer where TensorFlow knows it, and the last step of the run's record.
    """
    began = time.time() - time.monotonic()
    try:
        yield
    except kinds as error:
        if placement.processes == 1:
            raise
        peer, why = _lost(str(error), process_context(placement).rank)
        whom = "the other ranks" if peer is None else f"rank {peer}"
        jump = time.time() - time.monotonic() - began
        if "heartbeat" in why and abs(jump) >= _JUMP_SECONDS:
            why += f", which TensorFlow counts by the time of day; that has jumped by {jump:+.0f} s"
        raise lost(placement, record, f"lost {whom} ({why or type(error).__name__})") from None


def _lost(said: str, own: int) -> tuple[int | None, str]:
    """The rank that TensorFlow has lost, where it says which, and why; `said`: all that it says."""
    if "CoordinationService/Heartbeat" in said:
        return (None if own == 0 else 0), "it does not answer heartbeats"
    silent = re.search(r"stopped sending heartbeats\):\s*((?:/job:\S+\s*)+)", said)
    named = map(int, re.findall(r"/job:worker/(?:replica:0/)?task:(\d+)", silent[1] if silent else said))
    others = [rank for rank in named if rank != own]
    cause = re.search(r"(Collective ops is aborted by|recvmsg|Socket)[^\n]*", said)
    why = "it sends no heartbeats" if silent and others else cause[0] if cause else ""
    return (others[0] if others else None), why


def lost(placement: Placement, record: Path, what: str) -> RunError:
    """Return the one line of a worker that `what`, as in 'lost rank 1'; it may not be the first that fails."""
    where = f"rank {process_context(placement).rank} on {socket.gethostname()}"
    last = "" if starts_ranks(placement) else reached(record)
    return RunError(f"{where} {what}{last}; the first rank to fail says why")


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
