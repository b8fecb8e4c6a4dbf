"""The neighbours of a spec: the same with one field changed to what someone may have meant by it."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np

from parity.common.base.errors import ParityError
from parity.common.spec.base import Spec

# What numbers are usually set to, by the field's name.
_EPSILONS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-10, 1e-12, 0.0)
_SHARES = (0.0, 0.01, 0.1, 0.5, 0.9, 0.95, 0.98, 0.99, 0.995, 0.997, 0.999, 0.9999)
_USUAL: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("epsilon", "clip_epsilon", "epsilon_1", "epsilon_2", "norm_epsilon", "clip"), _EPSILONS),
    **dict.fromkeys(("decay", "momentum", "beta_1", "beta_2", "rho"), _SHARES),
    "negative_slope": (0.0, 0.01, 0.1, 0.2, 0.3),
    "rate": (0.0, 0.1, 0.2, 0.5),
    "drop_rate": (0.0,),
    "label_smoothing": (0.0, 0.1),
    "weight_decay": (0.0, 0.004, 0.01, 0.1),
    "decay_mask": ("all", "matrices", ("*bias*",), ("*bias*", "*gamma*", "*beta*")),
    "initial_accumulator": (0.0, 0.1),
    "momentum_decay": (1.0, 4e-3),
    "rotary_base": (1e4, 5e5),
    "delta": (1.0,),
    "strides": (1, 2),
    "padding": ("same", "valid"),
    "dilation": (1,),
    "rotary": (None, "half", "interleaved"),
}
# What does not change what is computed from given tensors.
_LEFT = {
    "kind",
    "name",
    "convention",
    "layers",
    "learning_rate",
    "units",
    "filters",
    "size",
    "heads",
    "ema",
    "use_bias",
    "output_bias",
}
# Fields that concern nothing but another field's values.
_CONCERNS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "negative_slope": ("function", ("leaky_relu",)),
    "rotary_base": ("rotary", ("half", "interleaved")),
}
# Numbers that someone may take for one minus themselves.
_COMPLEMENTS = ("decay", "momentum", "rate", "beta_1", "beta_2", "rho")


def neighbours(spec: Spec) -> Iterator[tuple[str, Any, Any]]:
    """(field, value, the spec with it) for every value but the present one that is worth a try.

    The other convention's first, then every choice of an enumeration, truth values turned, usual numbers.
    """
    for name, info in type(spec).model_fields.items():
        if name in _LEFT or name.endswith("initializer"):
            continue
        of, values = _CONCERNS.get(name, ("", ()))
        if of and getattr(spec, of, None) not in values:
            continue
        present = getattr(spec, name)
        tried: list[Any] = [present]
        for value in [*spec.conventions.get(name, ()), *_choices(info.annotation), *_numbers(name, present)]:
            if any(value == other and type(value) is type(other) for other in tried):
                continue
            tried.append(value)
            changed = changed_to(spec, name, value)
            if changed is not None:
                yield name, value, changed


def rounded_fields(spec: Spec) -> Iterator[tuple[str, float, Any]]:
    """(field, value, the spec with it) for every number that float32 does not hold."""
    for name in type(spec).model_fields:
        value = getattr(spec, name)
        if isinstance(value, float) and float(np.float32(value)) != value:
            changed = changed_to(spec, name, float(np.float32(value)))
            if changed is not None:
                yield name, value, changed


def changed_to(spec: Spec, name: str, value: Any) -> Any:
    """The spec with one field changed; None where it does not allow that."""
    try:
        return type(spec).parse({**spec.to_dict(), name: value})
    except ParityError:
        return None


def setting(spec: Spec, field: str, value: Any, where: str) -> dict[str, str]:
    """What a cause's text says of another value of a field: the facts of a match. where: the spec, in words."""
    return {"field": field, "value": said(value), "own": said(getattr(spec, field)), "where": where}


def said(value: Any) -> str:
    """A value of a field, for people."""
    if isinstance(value, float):
        return f"{value:.10g}"
    return "none" if value is None else str(value)


def _choices(annotation: Any) -> list[Any]:
    """Of an enumeration all words; of a truth value both."""
    if annotation is bool:
        return [False, True]
    origin = get_origin(annotation)
    if origin is Literal:
        return list(get_args(annotation))
    if origin in (Union, types.UnionType):
        return [choice for part in get_args(annotation) for choice in _choices(part)]
    return []


def _numbers(name: str, present: Any) -> list[Any]:
    found = list(_USUAL.get(name, ()))
    if isinstance(present, float):
        if name in _COMPLEMENTS:
            found.insert(0, round(1 - present, 12))
        found += [present * 2, present / 2, 0.0]
    return found
