"""Lightning's view of where this process stands, for the Trainer and for Fabric."""

from __future__ import annotations

from lightning.fabric.plugins.environments import TorchElasticEnvironment

from parity.common.execution.process_context import ProcessContext
from parity.common.spec import Placement
from parity.torch_impl.engines.joining import describe_group


class RankEnvironment(TorchElasticEnvironment):
    """One rank of a run whose processes are started; what the launcher said, nothing guessed.

    Lightning's other environments compute ranks from node numbers, or ask the first scheduler that they
    detect. This one reads the variables that `describe_group` sets.
    """

    def __init__(self, place: ProcessContext, placement: Placement) -> None:
        describe_group(place, placement)
        self._node = place.node

    def node_rank(self) -> int:
        return self._node
