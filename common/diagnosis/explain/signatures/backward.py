"""Signatures of a layer whose output is in order and whose backward pass is not."""

from __future__ import annotations

import numpy as np

from parity.common.diagnosis import limits
from parity.common.diagnosis.explain.signatures.base import (
    LOW_TYPES,
    Case,
    Match,
    lies_on,
    named_ratio,
    ratio_of,
)
from parity.common.diagnosis.explain.signatures.layers import base, layer_of
from parity.common.parity.deviation import tensor_deviation
from parity.common.record.trace import Array


def wrong_gradients(case: Case) -> dict[str, tuple[Array, Array]]:
    """(due, made) of what flows back through the layer, where its output is in order."""
    layer, due = layer_of(case), base(case)
    if layer is None or due is None:
        return {}
    far = {n: tensor_deviation(due[n], layer.made[n]) for n in layer.made if n in due}
    if far.get("y", 0.0) > limits.FITS:
        return {}
    wrong = [
        n for n, value in far.items() if value > max(limits.FITS, case.allowed) and not n.startswith("after/")
    ]
    return {n: (np.asarray(due[n], np.float64), np.asarray(layer.made[n], np.float64)) for n in wrong}


def backward_match(case: Case, after: float, tried_words: str, **facts: str) -> Match:
    layer, wrong = layer_of(case), wrong_gradients(case)
    assert layer is not None
    before = max(tensor_deviation(*pair) for pair in wrong.values())
    return Match({"layer": layer.node.path, "kind": layer.spec.kind, **facts}, before, after, tried_words)


def gradients_rounded(case: Case) -> Match | None:
    """Gradients of weights lie on the grid of a narrower type, on every replica."""
    wrong = wrong_gradients(case)
    names = [n.partition("/")[2] for n in wrong if n.startswith("gradient/")]
    for name, bits in LOW_TYPES.items():
        each = [
            s[f"local_gradient/{n}"] for n in names for s in case.made.replicas if f"local_gradient/{n}" in s
        ]
        each += [wrong[n][1] for n in wrong if n == "dx"]
        each = [value for value in each if np.any(value)]
        if each and all(lies_on(value, bits) for value in each) and _is_small(wrong, bits):
            what = ", ".join(names) or "what flows back"
            return backward_match(case, 0.0, f"{what} lies on the grid of {name}", type=name, what=what)
    return None


def _is_small(wrong: dict[str, tuple[Array, Array]], bits: int) -> bool:
    return all(tensor_deviation(*pair) < 2.0 ** (4 - bits) for pair in wrong.values())


def gradients_scaled(case: Case) -> tuple[str, str, Match] | None:
    """(cause, words, match): gradients of the layer are one multiple of what is due, its output in order."""
    wrong = wrong_gradients(case)
    if not wrong:
        return None
    ratio = ratio_of([due for due, _ in wrong.values()], [made for _, made in wrong.values()])
    if ratio is None:
        return None
    far = max(tensor_deviation(ratio * due, made) for due, made in wrong.values()) if ratio else 0.0
    if far > limits.FITS or (not ratio and any(np.any(made) for _, made in wrong.values())):
        return None
    key, words = named_ratio(case, ratio) if ratio else ("scaled_by_constant", "0")
    names = ", ".join(wrong)
    return key, words, backward_match(case, far, f"{names} are {ratio:.9g} times what is due", factor=words)


def gradients_transposed(case: Case) -> Match | None:
    """The gradient of a kernel is the due one, transposed."""
    wrong = wrong_gradients(case)
    for name, (due, made) in wrong.items():
        if (
            due.ndim >= 2
            and due.shape[-1] == due.shape[-2]
            and tensor_deviation(np.swapaxes(due, -1, -2), made) <= limits.FITS
        ):
            return backward_match(
                case, 0.0, f"{name} is the due one, transposed", words=f"with {name} transposed"
            )
    return None
