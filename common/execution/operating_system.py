"""What a training process asks of the operating system before it starts."""

from __future__ import annotations

import ctypes
import fcntl
import multiprocessing
import os
import signal
from multiprocessing.connection import wait

from parity.common.spec import Placement

# mallopt's parameters, from glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_TRIM_BYTES = (1 << 31) - 1


def keep_freed_memory() -> bool:
    """Have malloc keep what is freed instead of returning it to the system; False where it cannot.

    A training step frees and allocates the same large tensors over and over. Returned to the system
    they are faulted in again page by page, which took up to a third of a step, and in a process with
    several replicas the faults wait for one lock.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES) and mallopt(_M_MMAP_MAX, 0))


def on_each_node(placement: Placement) -> int:
    """How many devices the processes of one machine use together: one a replica, or one a rank of it."""
    return placement.processes * placement.replicas_per_process // placement.nodes


def pin_to_cores(placement: Placement, replicas: range) -> bool:
    """Bind this thread, and those it will start, to the cores of `replicas`.

    False, and nothing done, where the placement does not ask for it or where the machine has too few
    cores for all of its replicas: half of them bound would be worse than none.

    Args:
        placement: how many replicas are on each machine, and the threads of each.
        replicas: as numbered on this machine.
    """
    allowed = sorted(os.sched_getaffinity(0))
    threads = placement.threads_per_replica
    if not placement.pin or len(allowed) < on_each_node(placement) * threads:
        return False
    os.sched_setaffinity(0, allowed[replicas.start * threads : replicas.stop * threads])
    return True


def die_with_parent() -> None:
    """Have the kernel kill this process as soon as the process that asked for it has ended, however it ended.

    For children of `multiprocessing`. Their parent holds the other end of a pipe; that end closes with
    the parent, and the kernel then sends the signal. A thread that waits for the same may never run:
    some calls into a framework hold the interpreter's lock while they hang. The signal of a parent's
    death (PR_SET_PDEATHSIG) does not come, since the kernel takes the fork server for the parent.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        die_with_pipe(parent.sentinel)


def die_with_pipe(pipe: int) -> None:
    """Have the kernel kill this process as soon as all who hold the other end of a pipe have closed it."""
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    if wait([pipe], 0):  # it was closed before it was watched
        os.kill(os.getpid(), signal.SIGKILL)
