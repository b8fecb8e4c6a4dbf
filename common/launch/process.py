"""What a training process asks of the operating system before it starts."""

from __future__ import annotations

import ctypes
import os

from common.spec import Placement

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


def pin_to_cores(placement: Placement, replicas: range) -> bool:
    """Bind this thread, and those it will start, to the cores of `replicas`.

    False, and nothing done, where the placement does not ask for it or where the machine has too few
    cores for all of its replicas: half of them bound would be worse than none.
    """
    allowed = sorted(os.sched_getaffinity(0))
    threads = placement.threads_per_replica
    if not placement.pin or len(allowed) < placement.replicas * threads:
        return False
    os.sched_setaffinity(0, allowed[replicas.start * threads : replicas.stop * threads])
    return True
