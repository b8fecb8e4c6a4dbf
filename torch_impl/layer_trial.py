"""Single layers, each on one batch by itself: what a diagnosis tries."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from parity.common.execution.pass_context import Context
from parity.common.spec import Node
from parity.common.state.canonical import State
from parity.torch_impl.layers import build_layer
from parity.torch_impl.layers.registry import call
from parity.torch_impl.model import tensors_of


def tried(node: Node, facts: dict[str, Any], arrays: State) -> State:
    """One layer's output, and what a backward pass gives (`common/record/trials.py`)."""
    dtype = getattr(torch, facts["dtype"])
    layer = build_layer(node).to(dtype)
    tensors = tensors_of(node, layer)
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.live.copy_(tensor.shard(arrays[f"tensor/{name}"]))
    x, dy, ids, mask = (_tensor(arrays, name, dtype) for name in ("x", "dy", "ids", "token_mask"))
    assert x is not None
    backward = dy is not None
    x.requires_grad_(backward and x.is_floating_point())
    context = Context(facts["training"], facts["seed"], facts["step"], ids, mask)
    with torch.set_grad_enabled(backward):
        y = call(layer, x, context)
        total = sum(context.penalties, (y * dy).sum()) if backward else None
    found = {"y": y.detach().numpy()}
    if total is not None:
        if total.requires_grad:
            total.backward()
        if x.is_floating_point():
            found["dx"] = (torch.zeros_like(x) if x.grad is None else x.grad).numpy()
    for name, tensor in tensors.items():
        live = tensor.live
        if name.startswith("buffers/"):
            found[f"after/{name}"] = tensor.to_canonical(live)
        elif backward:
            gradient = torch.zeros_like(live) if live.grad is None else live.grad
            found[f"gradient/{name.removeprefix('parameters/')}"] = tensor.to_canonical(gradient)
    return found


def _tensor(arrays: State, name: str, dtype: torch.dtype) -> Tensor | None:
    """One of the arrays given, numbers in the trial's type."""
    if name not in arrays:
        return None
    tensor = torch.from_numpy(arrays[name].copy())
    return tensor.to(dtype) if tensor.is_floating_point() else tensor
