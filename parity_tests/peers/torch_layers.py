"""Forward and backward passes of a model, and random words, in PyTorch."""

from __future__ import annotations

from typing import Any

import torch

from parity.common.execution.pass_context import Context
from parity.common.spec import ModelSpec
from parity.torch_impl.layers import build_layer
from parity.torch_impl.layers.random import sample_words
from parity.torch_impl.model import tensors_of
from parity_tests.peers import Arrays


def forward_backward(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Output, penalty, gradients and buffers of one pass.

    facts: model (resolved ModelSpec), training, seed, step, precision.
    arrays: x, sample_ids, cotangent (of the output), and every tensor by canonical name.
    """
    model = ModelSpec.parse(facts["model"])
    dtype = getattr(torch, facts["precision"])
    tree = model.tree()
    module = build_layer(tree).to(dtype)
    tensors = tensors_of(tree, module)
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.live.copy_(tensor.shard(arrays[name]))
    x = torch.from_numpy(arrays["x"].copy())
    if x.is_floating_point():
        x.requires_grad_()
    mask = None if model.pad_id is None else x != model.pad_id
    ids = torch.from_numpy(arrays["sample_ids"].copy())
    context = Context(facts["training"], facts["seed"], facts["step"], ids, mask)
    y = module(x, context=context)
    penalty = sum(context.penalties, y.new_zeros(()))
    total = (y * torch.from_numpy(arrays["cotangent"].copy())).sum() + penalty
    if total.requires_grad:
        total.backward()
    results = {"y": y.detach().numpy(), "penalty": penalty.detach().numpy()}
    if x.is_floating_point():
        results["dx"] = (torch.zeros_like(x) if x.grad is None else x.grad).numpy()
    for name, tensor in tensors.items():
        live = tensor.live
        if name.startswith("buffers/"):
            results[name] = tensor.to_canonical(live)
        else:
            results[f"d{name}"] = tensor.to_canonical(
                torch.zeros_like(live) if live.grad is None else live.grad
            )
    return results


def words(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Keyed random words."""
    ids = torch.from_numpy(arrays["sample_ids"].copy())
    return {"words": sample_words(tuple(facts["key"]), facts["step"], ids, facts["count"]).numpy()}
