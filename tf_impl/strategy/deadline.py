"""Ends a worker that waits in vain for another one: TensorFlow would wait for ever.

It has a timeout for collectives, but starts a thread for each of them that sleeps until the time is over: at 100 steps
a second and two minutes, tens of thousands of threads. Here one thread looks, now and then, whether the process waits.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tensorflow as tf

from parity.common.execution.rank_failures import end_rank, lost
from parity.common.spec import Placement

_TENSORFLOW = os.path.dirname(os.path.realpath(tf.__file__))
_LOOK_SECONDS = 1.0
# Processor time, as a share of a core, of a process that does nothing but wait. What computes takes more, also where many
# processes share a core.
_IDLE = 0.01


@contextmanager
def ending_vain_waits(placement: Placement, record: Path) -> Iterator[None]:
    """Within it, this process ends with one line once it has waited for `timeout_seconds` in TensorFlow.

    That is: its main thread was in a call of TensorFlow all the time, and the process used no processor time to speak
    of. Looks are counted, not seconds, so that a process that was itself stopped is not taken for one that waited.
    On GPUs NCCL's threads may poll, which looks like work.
    """
    if placement.processes == 1:
        yield
        return
    over = threading.Event()
    watch = threading.Thread(
        target=_watch, args=(over, threading.get_ident(), placement, record), daemon=True
    )
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()


def _watch(over: threading.Event, waiter: int, placement: Placement, record: Path) -> None:
    used, idle = time.process_time(), 0.0
    while not over.wait(_LOOK_SECONDS):
        before, used = used, time.process_time()
        waits = used - before < _IDLE * _LOOK_SECONDS and _in_tensorflow(waiter)
        idle = idle + _LOOK_SECONDS if waits else 0.0
        if idle >= placement.timeout_seconds:
            for_whom = f"waited {placement.timeout_seconds} s in a collective for the other ranks"
            end_rank(lost(placement, record, for_whom))


def _in_tensorflow(thread: int) -> bool:
    frame = sys._current_frames().get(thread)
    return frame is not None and os.path.realpath(frame.f_code.co_filename).startswith(_TENSORFLOW)
