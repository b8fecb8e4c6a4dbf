"""Calls of losses: without one of their arguments, with another reduction or divisor, Huber's loss and its scaled form."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from parity.common.external.process.altering import Ways
from parity.torch_impl.alterations.base import Function

SCORES = (
    *(
        "cross_entropy",
        "nll_loss",
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
        "mse_loss",
        "l1_loss",
    ),
    *("kl_div", "gaussian_nll_loss", "poisson_nll_loss"),
)


def scored(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """A loss of torch's without one of its arguments, or with another reduction."""
    ways: Ways = {}
    for key in ("weight", "pos_weight", "ignore_index", "label_smoothing"):
        if kwargs.get(key) is not None:
            rest = {other: value for other, value in kwargs.items() if other != key}
            ways[f"without {key}"] = (
                f"is given {key}, and Keras's loss has none",
                partial(func, *args, **rest),
            )
    if name in ("cross_entropy", "nll_loss") and "ignore_index" not in kwargs and len(args) < 5:
        text = "counts targets of class 0, and leaving them out (ignore_index=0) is right"
        ways["ignore 0"] = (text, partial(func, *args, **kwargs, ignore_index=0))
    ways |= _element_by_element(func, args, kwargs)
    now = kwargs.get("reduction", "mean")
    for other in ("mean", "sum"):
        if len(args) < 4 and now in ("mean", "sum") and other != now:
            text = f"has the reduction {now!r}, and {other!r} is right"
            ways[f"reduction {other}"] = (text, partial(func, *args, **{**kwargs, "reduction": other}))
    return ways


def rounded_at_zero(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """Huber's loss and that divided by its delta: each as the other."""
    given = dict(zip(("input", "target"), args, strict=False)) | kwargs
    key, other = ("beta", "delta") if name == "smooth_l1_loss" else ("delta", "beta")
    exchanged = F.huber_loss if name == "smooth_l1_loss" else F.smooth_l1_loss
    rest = {"reduction": given.get("reduction", "mean"), other: given.get(key, 1.0)}
    ways = _element_by_element(func, args, kwargs)
    if len(args) > 2 or rest[other] == 1:
        return ways
    text = (
        f"is there with {key} {rest[other]:g}, and {exchanged.__name__} with {other} {rest[other]:g} is right"
    )
    return ways | {"other": (text, partial(exchanged, given["input"], given["target"], **rest))}


def _element_by_element(func: Function, args: Any, kwargs: Any) -> Ways:
    """What is broadcast although both have as many elements."""
    given = dict(zip(("input", "target"), args, strict=False)) | kwargs
    one, other = given.get("input"), given.get("target")
    known = isinstance(one, Tensor) and isinstance(other, Tensor)
    if not known or one.shape == other.shape or one.numel() != other.numel() or not other.is_floating_point():
        return {}
    text = f"broadcasts {tuple(one.shape)} and {tuple(other.shape)}, and element by element is right"
    call = partial(func, one, other.reshape(one.shape), *args[2:])
    rest = {key: value for key, value in kwargs.items() if key not in ("input", "target")}
    return {"element by element": (text, partial(call, **rest))}


def counted(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """The number of elements in place of their sum: what a loss divides by."""
    given = args[0] if args else kwargs.get("input")
    if name != "sum" or not isinstance(given, Tensor) or not given.is_floating_point():
        return {}
    text = "adds the elements up, and their number is right"
    return {"count": (text, lambda: func(torch.ones_like(given), *args[1:], **kwargs))}
