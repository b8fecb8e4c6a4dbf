"""Stock PyTorch modules, and our own layers as a training step runs them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from parity_tests.peers import Arrays
from parity_tests.peers.torch_layers import forward_backward


def stock(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Output, gradients and statistics of one nn class in float64, in canonical layout.

    facts: layer (the class), arguments, tensors (native name -> canonical name and the axes from
    canonical to native), training, trainable, channels_first (whether the module takes NC...).
    arrays: x, cotangent, and every tensor by canonical name.
    """
    module = getattr(nn, facts["layer"])(**facts["arguments"]).double().train(facts["training"])
    module.requires_grad_(facts["trainable"])
    live = {native: getattr(module, native) for native in facts["tensors"]}
    with torch.no_grad():
        for native, (name, axes) in facts["tensors"].items():
            live[native].copy_(torch.from_numpy(arrays[name].transpose(axes).copy()))
    x = torch.from_numpy(arrays["x"].copy()).requires_grad_()
    y = module(x.movedim(-1, 1)).movedim(1, -1) if facts["channels_first"] else module(x)
    (y * torch.from_numpy(arrays["cotangent"].copy())).sum().backward()
    results = {"y": y.detach().numpy(), "dx": x.grad.numpy()}
    for native, (name, axes) in facts["tensors"].items():
        tensor = live[native]
        back = torch.argsort(torch.tensor(axes)).tolist()
        key, value = (f"d{name}", tensor.grad) if tensor.requires_grad else (name, tensor)
        results[key] = value.detach().permute(back).numpy()
    return results


def in_a_graph(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Output and gradients of a pass; PyTorch needs no graph for it.

    facts and arrays as `torch_layers.forward_backward`, but the gradients are those of the output's sum.
    """
    return forward_backward(facts, {**arrays, "cotangent": np.ones_like(arrays["cotangent"])})
