"""Functions of torch that round what a float64 model computes, in float64 and with accurate sums."""

from __future__ import annotations

from contextlib import suppress

import torch
import torch.nn.functional as F
from torch.overrides import handle_torch_function, has_torch_function

from parity.common.external.process.exact import ExactFunctions

EXACT = ExactFunctions()
_hardsigmoid, _hardswish, _softplus = F.hardsigmoid, F.hardswish, F.softplus
# Torch's own threshold, and one above which softplus is what it is given.
_THRESHOLD, _FAR = 20, 40


def _exact_hardsigmoid(input: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    if input.dtype != torch.float64:
        return _hardsigmoid(input, inplace)
    EXACT.note("the gradient of hardsigmoid")
    return F.relu6(input + 3) / 6


def _exact_hardswish(input: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    if input.dtype != torch.float64:
        return _hardswish(input, inplace)
    EXACT.note("the gradient of hardswish")
    return input * (F.relu6(input + 3) / 6)


def _exact_batch_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """As the stock function, (batch, channels, ...), with sums by halves.

    Stock torch adds up the values of a channel one after another on a CPU: of pictures, with areas of one colour, each
    addition rounds the same way, so that statistics of some thousand values lose two digits, whatever their order is.
    """
    tensors = input, running_mean, running_var, weight, bias
    if has_torch_function(tensors):
        # As the stock function has itself seen: as one call.
        options = {"weight": weight, "bias": bias, "training": training, "momentum": momentum, "eps": eps}
        found: torch.Tensor = handle_torch_function(_exact_batch_norm, tensors, *tensors[:3], **options)
        return found
    if not training or input.dtype != torch.float64 or input.numel() == input.shape[1]:
        return _batch_norm(*tensors, training, momentum, eps)
    axes = [axis for axis in range(input.dim()) if axis != 1]
    shape = [-1 if axis == 1 else 1 for axis in range(input.dim())]
    mean = input.mean(axes, keepdim=True)
    centered = input - mean
    variance = centered.square().mean(axes, keepdim=True)
    count = input.numel() // input.shape[1]
    with torch.no_grad():
        if running_mean is not None:
            running_mean.lerp_(mean.flatten(), momentum)
        if running_var is not None:
            share = 1.0 if EXACT.biased_variances else count / (count - 1)
            running_var.lerp_(variance.flatten() * share, momentum)
    result = centered * (variance + eps).rsqrt()
    result = result if weight is None else result * weight.view(shape)
    return result if bias is None else result + bias.view(shape)


def _exact_softplus(input: torch.Tensor, beta: float = 1, threshold: float = 20) -> torch.Tensor:
    """As the stock function, which goes on with what is above its threshold as it is: at 20 that is 2e-9 too small, at 40 nothing."""
    if input.dtype != torch.float64 or not _THRESHOLD <= threshold < _FAR:
        return _softplus(input, beta, threshold)
    with suppress(RuntimeError, TypeError):  # within vmap, or on a GPU, no number is at hand
        if (input.detach().numpy() * beta > threshold).any():
            EXACT.note(f"softplus above {threshold:g}")
    return _softplus(input, beta, _FAR)


# What experiments on functions call it by.
_exact_batch_norm.__name__ = "batch_norm"
_batch_norm = F.batch_norm
EXACT.replacements = (
    (F, "hardsigmoid", _exact_hardsigmoid),
    (F, "hardswish", _exact_hardswish),
    (F, "batch_norm", _exact_batch_norm),
    (F, "softplus", _exact_softplus),
)
