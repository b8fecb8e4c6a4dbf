"""What engines are told: where the processes meet, how DDP is to wrap, what not to print."""

from __future__ import annotations

import logging
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch.distributed as dist

from parity.common.execution.process_context import ProcessContext
from parity.common.spec import Placement
from parity.torch_impl.strategy.all_reduce import timeout_of

# The store that rank 0 serves must live as long as the process group.
_served: list[dist.Store] = []


def describe_group(place: ProcessContext, placement: Placement) -> None:
    """Describe the process group in the variables from which an engine joins it.

    A launcher's place says where rank 0 listens. Processes that we started ourselves meet at a file: through it
    rank 0 says at which port of the loopback device it serves, so no port is ever chosen twice, and
    nothing listens to the network.
    """
    os.environ.update(place.variables())
    # Engines that find this unset choose a number of threads themselves.
    os.environ.setdefault("OMP_NUM_THREADS", str(placement.threads_per_replica))
    if place.one_machine:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if place.rendezvous is None:
        return
    # A file of its own, besides the one at which our own strategies meet.
    meeting = dist.FileStore(place.rendezvous + ".port", place.processes)
    meeting.set_timeout(timeout_of(placement))
    if place.rank == 0:
        store = _loopback_store(placement)
        _served.append(store)
        meeting.set("port", str(store.port))
    os.environ.update(_served_at(int(meeting.get("port"))))


@contextmanager
def local_store(placement: Placement) -> Iterator[None]:
    """Within it, processes that an engine starts find each other at a store of this process."""
    store = _loopback_store(placement)
    with patch.dict(os.environ, {"GLOO_SOCKET_IFNAME": "lo", **_served_at(store.port)}):
        # They would say that the processes are started already, and which this is.
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "NODE_RANK"):
            os.environ.pop(name, None)
        yield


def _loopback_store(placement: Placement) -> dist.TCPStore:
    """A store served at a free port that only this machine can reach."""
    listening = socket.create_server(("127.0.0.1", 0))
    return dist.TCPStore(
        "127.0.0.1",
        listening.getsockname()[1],
        is_master=True,
        wait_for_workers=False,
        timeout=timeout_of(placement),
        master_listen_fd=listening.detach(),
    )


def _served_at(port: int) -> dict[str, str]:
    """Variables as under torchrun: the store is there, no rank is to open one."""
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }


def quiet() -> None:
    """Keep Lightning from announcing itself, and from advice that is not meant for us."""
    warnings.filterwarnings("ignore", module=r"lightning\b")
    for name in ("lightning.fabric", "lightning.pytorch", "lightning.pytorch.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.ERROR)
