"""Which tensors only shift channels that a later norm shifts back: their gradient is rounding noise.

Walked from the output to the input: a shift of a layer's output makes no difference where every layer
behind it either passes a shift on as a shift or is a norm that subtracts it. Then walked forwards: the
moving mean of that norm goes where the noise takes the shift. (The evaluation still sees a wrong moving
mean: there the shift and the mean cancel.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from parity.common.spec.layers.base import Node, ParameterSpec
from parity.common.spec.layers.containers import Add, Concatenate, Container, Repeat, Residual, Sequential

_REASON = "the norm that follows subtracts it again"
_FOLLOWS = "it follows a shift before it that makes no difference"
# What a layer adds to each channel of its output.
_SHIFTS = ("bias", "beta")

# A layer without children looked at: what becomes of it, and what holds on its far side, given what does on its near.
Look = Callable[[Node, bool], tuple[Node, bool]]


def mark_shifts(root: Node) -> Node:
    """The tree with `null_direction` set on each bias and beta that makes no difference in training.

    And on the moving means that follow them.
    """
    marked, _ = _walked(root, False, _marked, backwards=True)
    return _walked(marked, False, _followed, backwards=False)[0]


def _walked(node: Node, near: bool, look: Look, backwards: bool) -> tuple[Node, bool]:
    """The node with all layers looked at, and what holds on its far side, given what does on its near."""
    spec, children = node.spec, list(node.children)
    if not isinstance(spec, Container):
        return look(node, near)
    if isinstance(spec, Add | Concatenate):
        pairs = [_walked(child, near, look, backwards) for child in children]
        children, far = [child for child, _ in pairs], (all if backwards else any)(each for _, each in pairs)
    elif backwards and not isinstance(spec, Sequential | Repeat | Residual):
        children, far = [_walked(child, False, look, backwards)[0] for child in children], False
    else:
        # A branch that is dropped for some samples shifts those it is kept for.
        far = near and not (backwards and getattr(spec, "drop_rate", False))
        for place in sorted(range(len(children)), reverse=backwards):
            children[place], far = _walked(children[place], far, look, backwards)
        if isinstance(spec, Residual):
            far = (near and far) if backwards else (near or far)
    return replace(node, children=tuple(children)), far


def _marked(node: Node, free: bool) -> tuple[Node, bool]:
    """The node marked, and whether a shift of its input makes no difference, given that of its output."""
    if free:
        node = _explained(node, _REASON, lambda p: p.name in _SHIFTS and p.trainable)
    return node, node.spec.subtracts_bias or (free and node.spec.passes_shift(node.input_shape))


def _followed(node: Node, shifted: bool) -> tuple[Node, bool]:
    """The node with its moving means marked, and whether its output may be shifted, given its input."""
    if shifted and node.spec.subtracts_bias:
        node = _explained(node, _FOLLOWS, lambda p: p.name == "moving_mean")
    own = any(p.name in _SHIFTS and p.null_direction for p in node.parameters)
    return node, own or (shifted and node.spec.passes_shift(node.input_shape))


def _explained(node: Node, reason: str, which: Callable[[ParameterSpec], bool]) -> Node:
    parameters = (replace(p, null_direction=reason) if which(p) else p for p in node.parameters)
    return replace(node, parameters=tuple(parameters))
