"""Ends a process that waits in TensorFlow for a worker that does not come. Runs as a script, without TensorFlow.

A thread of that process could not: the wait holds Python's lock, and is deaf to every signal but SIGKILL.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
import sys
import time

_PROBE_SECONDS = 1.0


def listens(worker: str) -> bool:
    """Whether something accepts connections at host:port."""
    host, _, port = worker.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_SECONDS).close()
    except OSError:
        return False
    return True


def waited(rank: int, seconds: int, missing: list[str]) -> str:
    """What a rank says that has waited in vain."""
    return (
        f"rank {rank} on {socket.gethostname()} waited {seconds} s for {', '.join(missing)};"
        " see that all workers were started and can reach each other"
    )


def main(pid: int, rank: int, seconds: int, pipe: int, workers: list[str]) -> None:
    """Kill `pid` after some seconds, unless standard input says something, or ends, before: it is that process's.

    Why goes to standard error, and, for the disk may be full, over a pipe that `rank_failures.Failures` reads; -1: none.
    """
    if select.select([sys.stdin], [], [], seconds)[0]:
        return
    others = [(f"rank {r} at {worker}", worker) for r, worker in enumerate(workers) if r != rank]
    silent = [name for name, worker in others if not listens(worker)]
    said = waited(rank, seconds, silent or [name for name, _ in others])
    if pipe >= 0:
        message = json.dumps((rank, time.monotonic(), said)).encode()
        os.write(pipe, struct.pack("!i", len(message)) + message)  # as multiprocessing's connections have it
    with contextlib.suppress(OSError):
        # A rank with a pipe has a log; another's output is what a person reads.
        print(said if pipe >= 0 else f"parity.tf_impl: error: {said}", file=sys.stderr, flush=True)
    os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:5]), sys.argv[5:])
