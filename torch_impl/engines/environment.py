"""Lightning's view of where this process stands, for the Trainer and for Fabric."""

from __future__ import annotations

import os

from lightning.fabric.plugins.environments import ClusterEnvironment

from parity.common.execution.process_context import ProcessContext
from parity.common.spec import Placement
from parity.torch_impl.engines.joining import describe_group


class RankEnvironment(ClusterEnvironment):
    """One rank of a run whose processes are started; what the launcher said, nothing guessed.

    Lightning's own environments compute ranks from node numbers, or ask the first scheduler that they
    detect.
    """

    def __init__(self, place: ProcessContext, placement: Placement) -> None:
        describe_group(place, placement)
        self._place = place

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        return os.environ["MASTER_ADDR"]

    @property
    def main_port(self) -> int:
        return int(os.environ["MASTER_PORT"])

    @staticmethod
    def detect() -> bool:
        return False

    def world_size(self) -> int:
        return self._place.processes

    def set_world_size(self, size: int) -> None:
        pass

    def global_rank(self) -> int:
        return self._place.rank

    def set_global_rank(self, rank: int) -> None:
        pass

    def local_rank(self) -> int:
        return self._place.local_rank

    def node_rank(self) -> int:
        return self._place.node
