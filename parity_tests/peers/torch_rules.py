"""Our rules as a `torch.optim.Optimizer`: on whole parameters, on a share of them, on flat pieces."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from parity.common.reference import StepScalars
from parity.common.spec import Placement, TrainSpec
from parity.common.state.canonical import slot_name
from parity.torch_impl import state
from parity.torch_impl.model import build_model
from parity.torch_impl.optimizers import adam, build_optimizer
from parity.torch_impl.strategy import open_strategy
from parity.torch_impl.wrapped.rule import RuleOptimizer, groups_of
from parity_tests.peers import Arrays


def steps(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Weights after each step and the slots at the end, as `torch_optimizers.steps` gives them.

    facts: spec (resolved TrainSpec), steps, flat (whether each group is cut into two flat pieces, the cut
    inside a tensor). arrays: the initial state, and `N/<parameter>` gradients.
    """
    spec = TrainSpec.parse(facts["spec"])
    strategy = open_strategy(Placement(framework="torch", strategy="single"))
    model = build_model(spec, strategy)
    # Only to set the weights, and to clip; it is not asked to update them.
    usual = build_optimizer(spec.optimizer, model, strategy)
    state.load(arrays, model, usual)
    groups = groups_of(spec.optimizer, model)
    if facts["flat"]:
        for group in groups:
            group["wholes"] = group["params"]
            group["params"] = [nn.Parameter(half) for half in _halves(group["wholes"])]
    optimizer = RuleOptimizer(groups)
    rates, results = StepScalars(spec), {}
    for step in range(facts["steps"]):
        for name, tensor in model.parameters.items():
            tensor.live.grad = tensor.shard(arrays[f"{step}/{name}"])
        pieces = usual.join([tensor.live.grad for tensor in model.parameters.values()])
        clipped = usual.apart(usual.clip(pieces, strategy.norms(pieces)[0]))
        for tensor, gradient in zip(model.parameters.values(), clipped, strict=True):
            tensor.live.grad = gradient
        if facts["flat"]:
            for group in optimizer.param_groups:
                halves = _halves([whole.grad for whole in group["wholes"]])
                for half, gradient in zip(group["params"], halves, strict=True):
                    half.grad = gradient
        if step == 0:
            optimizer.step()  # makes the slots and changes nothing
        optimizer.set_step(rates.scalars(step))
        # The flat ones as on a GPU.
        with patch.object(adam, "_fused", adam._in_passes if facts["flat"] else adam._fused):
            optimizer.step()
        if facts["flat"]:
            for group in optimizer.param_groups:
                _put_back(group["wholes"], group["params"])
        for name, tensor in model.parameters.items():
            results[f"{step}/{name}"] = tensor.to_canonical(tensor.live)
    by_tensor = {id(tensor.live): (name, tensor) for name, tensor in model.parameters.items()}
    for group in optimizer.param_groups:
        wholes = group.get("wholes", group["params"])
        for slot in group["slots"]:
            parts = [optimizer.state[part][slot] for part in group["params"]]
            if facts["flat"]:
                slots = [torch.empty_like(whole) for whole in wholes]
                _put_back(slots, parts)
                parts = slots
            for whole, part in zip(wholes, parts, strict=True):
                name, tensor = by_tensor[id(whole)]
                results[slot_name(slot, name)] = tensor.to_canonical(part)
    return results


def _halves(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    return [half.clone() for half in flat.tensor_split(2)]


@torch.no_grad()
def _put_back(wholes: list[torch.Tensor], halves: list[Any]) -> None:
    flat = torch.cat([half.detach() for half in halves])
    for whole, part in zip(wholes, flat.split([whole.numel() for whole in wholes]), strict=True):
        whole.copy_(part.view(whole.shape))
