"""DeepSpeed ZeRO: slots, gradients and parameters divided over the ranks, by stage.

The passes, the reduction and the step that applies our rule are DeepSpeed's. Each rank holds a run of
every tensor's elements as master weights; clipping, norms, states and digests are ours, over these shards,
as under any other strategy.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch import Tensor

from parity.common.spec import Placement
from parity.common.spec.deepspeed import deepspeed_config
from parity.torch_impl import runtime
from parity.torch_impl.sharding.tensors import CanonicalTensor, gather_all
from parity.torch_impl.strategy.all_reduce import PendingSums
from parity.torch_impl.strategy.base import Strategy

if TYPE_CHECKING:
    from parity.torch_impl.model import Model


class DeepSpeed(Strategy):
    """ZeRO stages 1 to 3 with our update rule as DeepSpeed's basic optimizer."""

    sharded = True

    def __init__(self, placement: Placement) -> None:
        self._deepspeed = import_deepspeed(on_gpu=runtime.uses_gpu(placement))
        super().__init__(placement)
        self._stage = placement.options.stage
        fixed = len(placement.accumulation) == 1
        # Given the number of micro-batches, it divides each loss by it.
        self.averages_over = placement.replicas * (placement.accumulation[0][1] if fixed else 1)

    def wrap(self, model: Model) -> None:
        from parity.torch_impl.strategy.deepspeed_parts import Flat, find_parts
        from parity.torch_impl.wrapped.rule import RuleOptimizer, groups_of

        self.rule = RuleOptimizer(groups_of(model.spec.optimizer, model))
        self.rule.changes = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.engine, *_ = self._deepspeed.initialize(
                model=model.module,
                optimizer=self.rule,
                config=deepspeed_config(model.spec, self.placement),
                dist_init_required=False,
            )
        model.module = self.engine
        self.parts = find_parts(self.engine.optimizer, self.rule, model, self._stage)
        held: list[Any] = [None] * self.placement.processes
        dist.all_gather_object(held, {name: part.master.numel() for name, part in self.parts.items()})
        for name, part in self.parts.items():
            model.tensors[name] = Flat.of(model.tensors[name], part, [sizes[name] for sizes in held])

    def accumulating(self, model: Model, last: bool) -> AbstractContextManager[Any]:
        self.engine.set_gradient_accumulation_boundary(last)
        return nullcontext()

    def backward(self, loss_sum: Tensor) -> None:
        self.engine.backward(loss_sum)

    def reduced(self, gradients: list[Tensor]) -> list[Tensor]:
        return [part.gradient() for part in self.parts.values()]

    def begin_sum(self, values: list[Tensor]) -> PendingSums:
        totals = super().begin_sum([value.to(self.device) for value in values])
        # Master weights in host memory are updated there.
        offloads = self.placement.options.offload_optimizer
        return (lambda: [total.cpu() for total in totals()]) if offloads else totals

    def begin_sum_shards(self, values: list[Tensor]) -> PendingSums:
        return self.begin_sum(values)

    def wholes(self, tensors: Sequence[CanonicalTensor]) -> list[Tensor]:
        if self._stage < 3:
            return [tensor.held[0] for tensor in tensors]
        return gather_all(tensors, [part.computing() for part in self.parts.values()])

    def push(self) -> None:
        """Take the master weights into the parameters that the passes use."""
        wrapper = self.engine.optimizer
        if self._stage < 3:
            wrapper.update_lp_params()
            return
        for group in range(len(wrapper.fp16_groups)):
            wrapper._reassign_or_swap_out_partitioned_parameters(group)

    def close(self, model: Model) -> None:
        self.engine.destroy()
        super().close(model)


def import_deepspeed(on_gpu: bool) -> Any:
    """The package, silenced, and kept from compiling what we do not use; `engines.check` says if it is there."""
    if not on_gpu:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import deepspeed
    deepspeed.utils.logger.setLevel(logging.ERROR)
    # It still calls collectives by names that torch has given up.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")
    # Its collectives through shared memory would be compiled at start, for 45 s; gloo and NCCL serve.
    # Asking which operations can be compiled here takes seconds too, so the answer is given.
    deepspeed.ops.__compatible_ops__ = {"deepspeed_shm_comm": False, "deepspeed_not_implemented": False}
    return deepspeed
