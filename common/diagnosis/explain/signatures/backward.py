"""Signatures of a layer whose output is in order and whose backward pass is not."""

from __future__ import annotations

import numpy as np

from parity.common.diagnosis import limits
from parity.common.diagnosis.explain.case import Case, once
from parity.common.diagnosis.explain.signatures.base import LOW_TYPES, Match, lies_on, named_ratio, ratio_of
from parity.common.diagnosis.explain.signatures.layers import base, layer_of, most_allowed
from parity.common.parity.deviation import tensor_deviation
from parity.common.record.trace import Array


@once
def wrong_gradients(case: Case) -> dict[str, tuple[Array, Array]]:
    """(due, made), each in the tensor's shape, of what flows back through the layer, where its output is in order."""
    layer, due = layer_of(case), base(case)
    if layer is None or not due:
        return {}
    far = {n: tensor_deviation(due[n], layer.made[n]) for n in layer.made if n in due}
    if far.get("y", 0.0) > limits.FITS:
        return {}
    wrong = [n for n, value in far.items() if value > most_allowed(case) and not n.startswith("after/")]
    return {n: (np.asarray(due[n], np.float64), np.asarray(layer.made[n], np.float64)) for n in wrong}


def backward_match(
    case: Case, after: float, tried: str, cause: str = "", words: str = "", **facts: str
) -> Match:
    """A match of what flows back through the layer."""
    layer = layer_of(case)
    assert layer is not None
    before = max(tensor_deviation(*pair) for pair in wrong_gradients(case).values())
    return Match({**layer.facts(words), **facts}, before, after, tried, cause=cause)


def gradients_rounded(case: Case) -> Match | None:
    """Gradients of weights lie on the grid of a narrower type, on every replica."""
    wrong = wrong_gradients(case)
    names = [n.partition("/")[2] for n in wrong if n.startswith("gradient/")]
    local = [f"local_gradient/{n}" for n in names]
    each = [state[n] for n in local for state in case.made.replicas if n in state]
    each = [value for value in [*each, *(wrong[n][1] for n in wrong if n == "dx")] if np.any(value)]
    for name, bits in LOW_TYPES.items():
        small = all(tensor_deviation(*pair) < 2.0 ** (4 - bits) for pair in wrong.values())
        if each and small and all(lies_on(value, bits) for value in each):
            what = ", ".join(names) or "what flows back"
            return backward_match(case, 0.0, f"{what} lies on the grid of {name}", type=name)
    return None


def gradients_scaled(case: Case) -> Match | None:
    """Gradients of the layer are one multiple of what is due, its output in order."""
    wrong = wrong_gradients(case)
    ratio = ratio_of([due for due, _ in wrong.values()], [made for _, made in wrong.values()])
    if ratio is None:
        return None
    far = max(tensor_deviation(ratio * due, made) for due, made in wrong.values()) if ratio else 0.0
    if far > limits.FITS or (not ratio and any(np.any(made) for _, made in wrong.values())):
        return None
    cause, factor = named_ratio(case, ratio) if ratio else ("scaled_by_constant", "0")
    tried = f"{', '.join(wrong)} are {ratio:.9g} times what is due"
    return backward_match(case, far, tried, cause, factor=factor)


def gradients_transposed(case: Case) -> Match | None:
    """The gradient of a kernel is the due one, transposed."""
    for name, (due, made) in wrong_gradients(case).items():
        square = due.ndim >= 2 and due.shape[-1] == due.shape[-2]
        if square and tensor_deviation(np.swapaxes(due, -1, -2), made) <= limits.FITS:
            words = f"with {name} transposed"
            return backward_match(case, 0.0, f"{name} is the due one, transposed", words=words)
    return None
