"""How the workers of a run find each other, and how long they wait."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from parity.common.base.errors import RunError
from parity.common.base.files import replacing
from parity.common.execution.process_context import ProcessContext
from parity.common.execution.rank_failures import failure_pipe
from parity.common.spec import Placement
from parity.tf_impl.strategy import watchdog

_POLL_SECONDS = 0.02


@contextmanager
def meeting(placement: Placement, place: ProcessContext) -> Iterator[list[str]]:
    """The workers' addresses in rank order, and within it a limit to waiting for them."""
    with ExitStack() as held:
        workers = list(place.workers or _exchanged(placement, place, held))
        pipe = failure_pipe()
        limits = [os.getpid(), place.rank, placement.timeout_seconds, -1 if pipe is None else pipe]
        limiting = subprocess.Popen(
            [sys.executable, "-I", "-S", watchdog.__file__, *map(str, limits), *workers],
            stdin=subprocess.PIPE,
            # Not descriptor 2, which may lead to a log that ends with this process.
            stderr=sys.stderr,
            pass_fds=() if pipe is None else (pipe,),
        )
        held.callback(limiting.communicate, b"met")
        yield workers


def _exchanged(placement: Placement, place: ProcessContext, held: ExitStack) -> list[str]:
    """On one machine: each takes a free port, writes it beside the rendezvous, and reads the others'."""
    if place.rendezvous is None:
        raise RunError(
            f"rank {place.rank} knows no addresses of workers; the launcher must give them, in rank order"
        )
    port = held.enter_context(_held_port())
    files = [Path(f"{place.rendezvous}.worker_{rank}") for rank in range(place.processes)]
    with replacing(files[place.rank]) as temporary:
        temporary.write_text(f"127.0.0.1:{port.getsockname()[1]}")
    deadline = time.monotonic() + placement.timeout_seconds
    while missing := [f"rank {rank}" for rank, file in enumerate(files) if not file.exists()]:
        if time.monotonic() > deadline:
            raise RunError(watchdog.waited(place.rank, placement.timeout_seconds, missing))
        time.sleep(_POLL_SECONDS)
    return [file.read_text() for file in files]


def _held_port() -> socket.socket:
    """A free port of the loopback address, held until TensorFlow's server has bound it besides."""
    os.environ["TF_GRPC_REUSE_PORT"] = "1"
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(("127.0.0.1", 0))
    return held
