"""What a rank holds of each tensor under DeepSpeed, and the optimizer that updates it.

Here, and in `DeepSpeed.push`, is all that we read of DeepSpeed's insides; its public `safe_*` functions give
copies, or whole tensors, and we need views of a rank's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from parity.common.spec.optimizers import OptimizerBase
from parity.torch_impl.model import Model
from parity.torch_impl.optimizers.base import Optimizer
from parity.torch_impl.sharding.tensors import CanonicalTensor, Shards
from parity.torch_impl.wrapped.rule import RuleOptimizer


@dataclass(frozen=True, eq=False)
class Part:
    """This rank's run of a parameter's elements: views of a flat partition of many.

    start, count: where in the partition. master: the weights that the rule updates.
    """

    parameter: nn.Parameter
    partition: Tensor
    start: int
    count: int

    @property
    def master(self) -> Tensor:
        return self.view(self.partition)

    def view(self, like_partition: Tensor) -> Tensor:
        """This part of a tensor that is laid out as the partition."""
        return like_partition.detach().narrow(0, self.start, self.count)

    @property
    def held(self) -> list[Tensor]:
        """What this rank holds of the parameter that the passes use."""
        return [self.parameter.detach()]

    def gradient(self) -> Tensor:
        """A view of the gradient that DeepSpeed has reduced; from the last backward pass to the step."""
        if not self.count:
            return self.master
        mapping = self.parameter._hp_mapping
        fragment = mapping.get_lp_grad_fragment(self.parameter._index_in_param_group).view(-1)
        if fragment.numel() == self.count:
            return fragment
        return fragment.narrow(0, mapping.lp_fragment_address.start, self.count)

    def set_gradient(self, value: Tensor) -> None:
        """Have the step use this gradient."""
        if self.count:
            self.gradient().copy_(value)


class Stage3Part(Part):
    """Of a parameter that is divided itself, into parts of one length, the last ones filled up."""

    @property
    def held(self) -> list[Tensor]:
        # The second is empty between two steps, unless DeepSpeed keeps small parameters whole.
        return [self.parameter.ds_tensor.detach(), self.parameter.detach()]

    def computing(self) -> Tensor:
        """This part of the parameter that the passes use."""
        return self.held[0].view(-1)[: self.count]

    def gradient(self) -> Tensor:
        filled = self.parameter._z3_optimizer.get_local_fp32_grad_for_param(self.parameter)
        return filled[: self.count].to(self.partition.device)

    def set_gradient(self, value: Tensor) -> None:
        filled = self.parameter._z3_optimizer.get_local_fp32_grad_for_param(self.parameter)
        filled[: self.count].copy_(value)
        # Where the gradient is kept on another device, that was a copy.
        self.parameter._z3_optimizer.set_local_grad_for_param(filled, self.parameter)


@dataclass(frozen=True)
class Flat(CanonicalTensor):
    """A tensor of which each rank holds a run of elements, apart from the parameter of the passes."""

    rank_part: Part | None = None

    @classmethod
    def of(cls, tensor: CanonicalTensor, part: Part, sizes: Sequence[int]) -> Flat:
        shape = getattr(part.parameter, "ds_shape", part.parameter.shape)
        shards = Shards(tuple(shape), tuple(sizes), None)
        return cls(tensor.owner, tensor.attribute, tensor.axes, shards, part)

    @property
    def live(self) -> Tensor:
        return self.rank_part.master

    @property
    def held(self) -> list[Tensor]:
        return self.rank_part.held


def find_parts(wrapper: Any, rule: RuleOptimizer, model: Model, stage: int) -> dict[str, Part]:
    """This rank's part of each parameter, by canonical name; makes the rule's slots."""
    if stage == 3:
        partitions = wrapper.fp32_partitioned_groups_flat
        groups = [wrapper.sub_group_to_group_id[number] for number in range(len(partitions))]
    else:
        partitions = wrapper.single_partition_of_fp32_groups
        groups = range(len(partitions))
    for partition, group in zip(partitions, groups, strict=True):
        _make_slots(rule, rule.param_groups[group], partition)
    find = _part_of_stage_3 if stage == 3 else _part
    return {name: find(wrapper, tensor.live) for name, tensor in model.parameters.items()}


def _make_slots(rule: RuleOptimizer, group: dict[str, Any], partition: Tensor) -> None:
    """Have the rule make its slots of a partition, as its first step would."""
    groups, parameters, gradient = rule.param_groups, group["params"], partition.grad
    # Any gradient will do: without scalars of a step, nothing is updated.
    rule.param_groups, group["params"], partition.grad = [group], [partition], partition.detach()
    rule.step()
    rule.param_groups, group["params"], partition.grad = groups, parameters, gradient


def _part(wrapper: Any, parameter: nn.Parameter) -> Part:
    mapping = parameter._hp_mapping
    if mapping is None:  # all of it lies on other ranks
        return Part(parameter, wrapper.single_partition_of_fp32_groups[0], 0, 0)
    partition = wrapper.single_partition_of_fp32_groups[mapping.param_group_index]
    address = mapping.hp_fragment_address
    return Part(parameter, partition, address.start, address.numel)


def _part_of_stage_3(wrapper: Any, parameter: nn.Parameter) -> Part:
    group, start, length = wrapper.grad_position[wrapper.get_param_id(parameter)]
    first = torch.distributed.get_rank() * length
    count = max(0, min(length, parameter.ds_numel - first))
    return Stage3Part(parameter, wrapper.fp32_partitioned_groups_flat[group], start, count)


class DeepSpeedOptimizer(Optimizer):
    """Our optimizer's outside over DeepSpeed's step; weights and slots are views of its partitions."""

    def __init__(self, spec: OptimizerBase, model: Model, strategy: Any) -> None:
        self.spec = spec
        self._strategy, self._named = strategy, model.parameters
        self._weights = [tensor.live for tensor in self._named.values()]
        self.slots: dict[str, dict[str, Tensor]] = {}
        for name, part in strategy.parts.items():
            for slot, value in strategy.rule.state[part.partition].items():
                self.slots.setdefault(slot, {})[name] = part.view(value)

    @torch.no_grad()
    def update(self, gradients: list[Tensor], scalars: dict[str, float]) -> list[Tensor]:
        strategy = self._strategy
        for part, gradient in zip(strategy.parts.values(), gradients, strict=True):
            part.set_gradient(gradient)
        strategy.rule.set_step(scalars)
        strategy.engine.step()
        changes = strategy.rule.changes
        return [part.view(changes[part.partition]) for part in strategy.parts.values()]

    def loaded(self) -> None:
        self._strategy.push()

    @contextmanager
    def averaged(self) -> Iterator[None]:
        try:
            with super().averaged():
                self._strategy.push()
                yield
        finally:
            self._strategy.push()
