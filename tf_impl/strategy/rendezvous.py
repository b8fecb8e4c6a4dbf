"""How the workers of a run find each other, and how long they wait."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from parity.common.base.errors import RunError
from parity.common.base.files import replacing
from parity.common.execution.process_context import ProcessContext
from parity.common.spec import Placement
from parity.tf_impl.strategy import watchdog

_POLL_SECONDS = 0.02


class WorkerRendezvous:
    """The workers' addresses in rank order, and a limit to waiting for them. Use as a context manager."""

    def __init__(self, placement: Placement, place: ProcessContext) -> None:
        self._place = place
        self._seconds = placement.timeout_seconds
        self._port: socket.socket | None = None
        self._watchdog: subprocess.Popen | None = None

    def __enter__(self) -> list[str]:
        known = self._place.workers
        workers = list(known) if known else self._exchange()
        limits = [os.getpid(), self._place.rank, self._seconds]
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", "-S", watchdog.__file__, *map(str, limits), *workers],
            stdin=subprocess.PIPE,
            # Not descriptor 2, which may lead to a log that ends with this process.
            stderr=sys.stderr,
        )
        return workers

    def __exit__(self, *_: object) -> None:
        if self._watchdog is not None:
            self._watchdog.communicate(b"met")
        if self._port is not None:
            self._port.close()

    def _exchange(self) -> list[str]:
        """On one machine: each takes a free port, writes it beside the rendezvous, and reads the others'."""
        if self._place.rendezvous is None:
            raise RunError(
                f"rank {self._place.rank} knows no addresses of workers; the launcher must give them, in rank order"
            )
        self._port = _held_port()
        files = [Path(f"{self._place.rendezvous}.worker_{rank}") for rank in range(self._place.processes)]
        with replacing(files[self._place.rank]) as temporary:
            temporary.write_text(f"127.0.0.1:{self._port.getsockname()[1]}")
        deadline = time.monotonic() + self._seconds
        while missing := [f"rank {rank}" for rank, file in enumerate(files) if not file.exists()]:
            if time.monotonic() > deadline:
                raise RunError(watchdog.waited(self._place.rank, self._seconds, missing))
            time.sleep(_POLL_SECONDS)
        return [file.read_text() for file in files]


def _held_port() -> socket.socket:
    """A free port of the loopback address, held until TensorFlow's server has bound it besides."""
    os.environ["TF_GRPC_REUSE_PORT"] = "1"
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(("127.0.0.1", 0))
    return held
