"""Calls that mask: with the mask inverted, or without it; and attention, causal or not."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from parity.common.external.process.altering import Ways
from parity.torch_impl.alterations.base import Function, tensors_of


def selected(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """With the mask inverted, or without it."""
    mask = 0 if name == "where" else 1
    if len(args) != 3 or not isinstance(args[mask], Tensor) or args[mask].dtype != torch.bool:
        return {}
    inverted = [~each if place == mask else each for place, each in enumerate(args)]
    ways: Ways = {"inverted": ("takes the inverted mask", partial(func, *inverted))}
    for kept in (1, 2) if name == "where" else (0,):
        if isinstance(args[kept], Tensor):
            text = "applies a mask that Keras does not"
            if name == "where":
                text = (
                    f"takes operand {kept + 1} for some elements alone, and for all in these samples is right"
                )
            ways[f"unmasked {kept}"] = (text, lambda kept=kept: args[kept] + torch.zeros_like(func(*args)))
    return ways


def compared(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """A mask that is inverted where it is made."""
    given = tensors_of(args)
    if name in ("invert", "bitwise_not") and (not given or given[0].dtype != torch.bool):
        return {}
    return {"inverted": ("gives the inverted mask", lambda: ~func(*args, **kwargs))}


def attended(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """Attention with other masks."""
    places = {"scaled_dot_product_attention": {"attn_mask": 3}}.get(name, {})
    given = dict(kwargs)
    given |= {key: args[place] for key, place in places.items() if len(args) > place}
    head = args[: min(places.values(), default=len(args))]
    ways: Ways = {}
    for key in ("attn_mask", "key_padding_mask"):
        mask = given.get(key)
        if mask is None:
            continue
        changed = partial(func, *head)
        ways[f"no {key}"] = (
            f"applies {key}, and Keras has no such mask",
            partial(changed, **{**given, key: None}),
        )
        if mask.dtype == torch.bool:
            ways[f"inverted {key}"] = (
                f"takes {key} inverted",
                partial(changed, **{**given, key: ~mask}),
            )
    if name == "scaled_dot_product_attention" and given.get("attn_mask") is None:
        causal = bool(given.get("is_causal"))
        text = (
            "looks at later positions too, and Keras does not"
            if not causal
            else "is causal, and Keras's is not"
        )
        ways["causal"] = (text, partial(func, *head, **{**given, "is_causal": not causal}))
    return ways
