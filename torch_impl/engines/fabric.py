"""Lightning Fabric in our loop: it joins the process group, wraps the module and runs the backward pass."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import lightning.fabric
from lightning.fabric.plugins.environments import TorchElasticEnvironment
from lightning.fabric.strategies import DDPStrategy, ModelParallelStrategy
from torch import Tensor, nn

from parity.common.execution.process_context import ProcessContext
from parity.common.spec import Placement
from parity.torch_impl.engines.joining import describe_group, quiet
from parity.torch_impl.strategy.all_reduce import timeout_of
from parity.torch_impl.strategy.base import Strategy
from parity.torch_impl.strategy.blocks import checkpoint_blocks
from parity.torch_impl.strategy.replicated import ddp_options
from parity.torch_impl.strategy.sharded import FSDP2

if TYPE_CHECKING:
    from parity.torch_impl.model import Model


class RankEnvironment(TorchElasticEnvironment):
    """One rank of a run whose processes are started, for Fabric and the Trainer; what the launcher said, nothing guessed.

    Lightning's other environments compute ranks from node numbers, or ask the first scheduler that they
    detect. This one reads the variables that `describe_group` sets.
    """

    def __init__(self, place: ProcessContext, placement: Placement) -> None:
        describe_group(place, placement)
        self._node = place.node

    def node_rank(self) -> int:
        return self._node


class Fabric(Strategy):
    """One device, or Fabric's DDPStrategy."""

    def __init__(self, placement: Placement) -> None:
        self.fabric: Any = None
        super().__init__(placement)
        if self.fabric is None:
            self.fabric = self._fabric("auto")
        self.averages_over = placement.replicas

    def _join(self, backend: str) -> None:
        self.fabric = self._fabric(self._strategy(backend))
        self.fabric.launch()

    def _strategy(self, backend: str) -> Any:
        return DDPStrategy(
            process_group_backend=backend, timeout=timeout_of(self.placement), **ddp_options(self.placement)
        )

    def _fabric(self, strategy: Any) -> Any:
        quiet()
        alone = self.placement.strategy == "single"
        return lightning.fabric.Fabric(
            accelerator="cuda" if self.device.startswith("cuda") else "cpu",
            devices=self.placement.processes // self.placement.nodes,
            num_nodes=self.placement.nodes,
            strategy=strategy,
            plugins=[] if alone else [RankEnvironment(self.place, self.placement)],
            # The module has the spec's own type, float64 too. Fabric's "64-true" would cast what it
            # returns to torch's default type, float32.
            precision="32-true",
        )

    def wrap(self, model: Model) -> None:
        if self.placement.strategy == "ddp":
            checkpoint_blocks(self.placement, model.module)
        model.module = self.fabric.setup_module(model.module)

    def accumulating(self, model: Model, last: bool) -> AbstractContextManager[Any]:
        # Fabric warns where there is nothing to hold back.
        alone = self.placement.strategy == "single"
        return self.fabric.no_backward_sync(model.module, enabled=not (last or alone))

    def backward(self, loss_sum: Tensor) -> None:
        self.fabric.backward(self.with_sums(loss_sum))


class FabricFSDP2(Fabric, FSDP2):
    """Fabric's ModelParallelStrategy, by which the module is sharded as by our own fully_shard."""

    def _strategy(self, backend: str) -> Any:
        return ModelParallelStrategy(
            self._sharded,
            data_parallel_size=self.placement.processes,
            tensor_parallel_size=1,
            process_group_backend=backend,
            timeout=timeout_of(self.placement),
        )

    def _sharded(self, module: nn.Module, mesh: Any) -> nn.Module:
        del module, mesh  # ours: it also knows of groups of shards
        FSDP2.wrap(self, self._model)
        return self._model.module

    def wrap(self, model: Model) -> None:
        self._model = model
        try:
            super().wrap(model)
        finally:
            del self._model


STRATEGIES = {"single": Fabric, "ddp": Fabric, "fsdp2": FabricFSDP2}
