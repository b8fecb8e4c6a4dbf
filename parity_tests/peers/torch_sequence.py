"""PyTorch's own sequence layers, with given weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from parity_tests.peers import Arrays


def stock(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Output and gradients of a layer of torch.nn in float64.

    facts: layer (its class), options, last (for recurrent layers: the final hidden state instead of all outputs).
    arrays: x, cotangent, weight/NAME for each parameter, and where there are such, mask (batch, tokens),
        False at padding, causal (tokens, tokens), False where a token must not look, and memory,
        which attention attends to.
    """
    layer = getattr(nn, facts["layer"])(**facts["options"]).double()
    weights = {name.removeprefix("weight/"): value for name, value in arrays.items() if "weight/" in name}
    layer.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in weights.items()})
    inputs = {name: torch.from_numpy(arrays[name].copy()) for name in ("x", "memory") if name in arrays}
    for tensor in inputs.values():
        tensor.requires_grad_(tensor.is_floating_point())
    mask = torch.from_numpy(arrays["mask"].copy()) if "mask" in arrays else None
    if isinstance(layer, nn.MultiheadAttention):
        memory = inputs.get("memory", inputs["x"])
        causal = None if "causal" not in arrays else ~torch.from_numpy(arrays["causal"].copy())
        padding = None if mask is None else ~mask
        y, _ = layer(inputs["x"], memory, memory, padding, attn_mask=causal, need_weights=False)
    elif isinstance(layer, nn.RNNBase):
        y = _recurrent(layer, inputs["x"], mask, facts["last"])
    else:
        y = layer(inputs["x"])
    (y * torch.from_numpy(arrays["cotangent"].copy())).sum().backward()
    results = {"y": y.detach().numpy()}
    results |= {f"d{name}": tensor.grad.numpy() for name, tensor in inputs.items() if tensor.grad is not None}
    for name, parameter in layer.named_parameters():
        results[f"dweight/{name}"] = parameter.grad.numpy()
    return results


def _recurrent(layer: nn.RNNBase, x: torch.Tensor, mask: torch.Tensor | None, last: bool) -> torch.Tensor:
    tokens = x.shape[1]
    if mask is not None:
        x = nn.utils.rnn.pack_padded_sequence(x, mask.sum(1), batch_first=True, enforce_sorted=False)
    y, state = layer(x)
    if last:
        hidden = state[0] if isinstance(layer, nn.LSTM) else state
        return torch.cat(list(hidden[-2:] if layer.bidirectional else hidden[-1:]), -1)
    if mask is not None:
        y, _ = nn.utils.rnn.pad_packed_sequence(y, batch_first=True, total_length=tokens)
    return y
