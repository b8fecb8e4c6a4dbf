"""Numbers that calls are given: scales, exponents, bounds, slopes, margins, what is added lest something be zero."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from parity.torch_impl.alterations.base import Function

_ARITHMETIC = ("add", "radd", "iadd", "sub", "rsub", "isub", "mul", "rmul", "imul", "multiply")
_DIVISIONS = ("div", "truediv", "rtruediv", "itruediv", "true_divide", "pow", "rpow")
# Of functions, their arguments that are such numbers, by their places, and what they are where they are not given.
_ARGUMENTS: dict[str, tuple[dict[int, str], dict[str, float]]] = {
    "clamp": ({1: "min", 2: "max"}, {}),
    "clamp_min": ({1: "min"}, {}),
    "clamp_max": ({1: "max"}, {}),
    "leaky_relu": ({1: "negative_slope"}, {"negative_slope": 0.01}),
    "elu": ({1: "alpha"}, {"alpha": 1.0}),
    "softplus": ({1: "beta"}, {"beta": 1.0}),
    "layer_norm": ({4: "eps"}, {"eps": 1e-5}),
    "rms_norm": ({3: "eps"}, {}),
    "group_norm": ({4: "eps"}, {"eps": 1e-5}),
    "batch_norm": ({7: "eps"}, {"eps": 1e-5}),
    "normalize": ({3: "eps"}, {"eps": 1e-12}),
    "cosine_similarity": ({3: "eps"}, {"eps": 1e-8}),
    "smooth_l1_loss": ({5: "beta"}, {"beta": 1.0}),
    "huber_loss": ({3: "delta"}, {"delta": 1.0}),
    "cross_entropy": ({7: "label_smoothing"}, {"label_smoothing": 0.0}),
    "margin_ranking_loss": ({3: "margin"}, {"margin": 0.0}),
    "triplet_margin_loss": ({3: "margin"}, {"margin": 1.0}),
    "cosine_embedding_loss": ({3: "margin"}, {"margin": 0.0}),
    "scaled_dot_product_attention": ({6: "scale"}, {}),
}


def numbers_of(name: str, args: Any, kwargs: Any) -> dict[str, float]:
    """Return the numbers of a call by name, 'operand 2' of arithmetic; {} where it has none that could be others."""
    if name in (*_ARITHMETIC, *_DIVISIONS):
        if not any(isinstance(each, Tensor) and each.is_floating_point() for each in args):
            return {}
        return {f"operand {place}": float(each) for place, each in enumerate(args, 1) if _is_number(each)}
    places, defaults = _ARGUMENTS.get(name, ({}, {}))
    given = defaults | {places[at]: each for at, each in enumerate(args) if at in places}
    given |= {key: each for key, each in kwargs.items() if key in places.values()}
    return {key: float(each) for key, each in given.items() if _is_number(each)}


def with_number(name: str, func: Function, args: Any, kwargs: Any, which: str, value: float) -> Any:
    """Make a call with another number in place of one of `numbers_of`."""
    if which.startswith("operand "):
        place = int(which.split()[1]) - 1
        return func(*args[:place], value, *args[place + 1 :], **kwargs)
    places, _ = _ARGUMENTS[name]
    at = next(at for at, key in places.items() if key == which)
    if at < len(args):
        return func(*args[:at], value, *args[at + 1 :], **kwargs)
    return func(*args, **{**kwargs, which: value})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
