"""Hugging Face Accelerate in our loop: it joins the process group, wraps the module, runs the backward pass."""

from __future__ import annotations

import os
import warnings
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs, InitProcessGroupKwargs
from torch import Tensor

from parity.common.data.plan import BatchPlan
from parity.common.spec import Placement
from parity.torch_impl.engines.joining import describe_group
from parity.torch_impl.private_names import SYNC_BUFFERS
from parity.torch_impl.strategy.all_reduce import timeout_of
from parity.torch_impl.strategy.base import Strategy
from parity.torch_impl.strategy.blocks import checkpoint_blocks
from parity.torch_impl.strategy.replicated import ddp_options

if TYPE_CHECKING:
    from parity.torch_impl.model import Model


class Accelerate(Strategy):
    """One device, or Accelerate's MULTI_CPU and MULTI_GPU, which are DDP."""

    def __init__(self, placement: Placement) -> None:
        self.accelerator: Any = None
        super().__init__(placement)
        if self.accelerator is None:
            # By this it would think itself one rank of many, and wrap the module.
            os.environ.pop("LOCAL_RANK", None)
            self.accelerator = Accelerator(cpu=self.device == "cpu")
        self._step = self._piece = 0

    def _join(self, backend: str) -> None:
        describe_group(self.place, self.placement)
        handlers: list[Any] = [InitProcessGroupKwargs(backend, timeout=timeout_of(self.placement))]
        options = ddp_options(self.placement)
        # It knows this one by its older name.
        options["broadcast_buffers"] = options.pop(SYNC_BUFFERS)
        handlers.append(DistributedDataParallelKwargs(**options))
        self.accelerator = Accelerator(cpu=backend == "gloo", kwargs_handlers=handlers)

    def wrap(self, model: Model) -> None:
        self._plan = BatchPlan.of(model.spec, self.placement)
        checkpoint_blocks(self.placement, model.module)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            model.module = self.accelerator.prepare_model(model.module)

    def accumulating(self, model: Model, last: bool) -> AbstractContextManager[Any]:
        """Accelerate's own accumulation. It divides each loss by the number of micro-batches."""
        count = self.placement.micro_batches(self._plan.epoch(self._step))
        if self._piece == 0:
            self.accelerator.gradient_accumulation_steps = count
            # It counts on over all steps, but the number may change with the epoch.
            self.accelerator.step = 0
            self.averages_over = self.placement.replicas * count
        self._piece = 0 if last else self._piece + 1
        self._step += last
        return self.accelerator.accumulate(model.module)

    def backward(self, loss_sum: Tensor) -> None:
        self.accelerator.backward(loss_sum)


STRATEGIES = {"single": Accelerate, "ddp": Accelerate}
