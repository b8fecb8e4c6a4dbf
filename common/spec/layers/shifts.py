"""Which tensors only shift channels that a later norm shifts back: their gradient is rounding noise.

Walked from the output to the input: a shift of a layer's output makes no difference where every layer
behind it either passes a shift on as a shift or is a norm that subtracts it. Then walked forwards: the
moving mean of that norm goes where the noise takes the shift. (The evaluation still sees a wrong moving
mean: there the shift and the mean cancel.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from parity.common.spec.layers.base import Node
from parity.common.spec.layers.containers import Add, Concatenate, Container, Repeat, Residual, Sequential

_REASON = "the norm that follows subtracts it again"
_FOLLOWS = "it follows a shift before it that makes no difference"
# What a layer adds to each channel of its output.
_SHIFTS = ("bias", "beta")


def mark_shifts(root: Node) -> Node:
    """The tree with `null_direction` set on each bias and beta that makes no difference in training.

    And on the moving means that follow them.
    """
    return _followed(_marked(root, False)[0], False)[0]


def _marked(node: Node, free: bool) -> tuple[Node, bool]:
    """The node marked, and whether a shift of its input makes no difference, given that of its output."""
    spec = node.spec
    if isinstance(spec, Container):
        return _marked_container(node, free)
    if free:
        parameters = tuple(
            replace(p, null_direction=_REASON) if p.name in _SHIFTS and p.trainable else p
            for p in node.parameters
        )
        node = replace(node, parameters=parameters)
    return node, spec.subtracts_bias or (free and spec.passes_shift(node.input_shape))


def _marked_container(node: Node, free: bool) -> tuple[Node, bool]:
    spec = node.spec
    if isinstance(spec, Sequential | Repeat):
        children, free = _marked_chain(node.children, free)
    elif isinstance(spec, Residual):
        # A branch that is dropped for some samples shifts those it is kept for.
        children, inside = _marked_chain(node.children, free and not spec.drop_rate)
        free = free and inside
    elif isinstance(spec, Add | Concatenate):
        pairs = [_marked(child, free) for child in node.children]
        children, free = [child for child, _ in pairs], all(inside for _, inside in pairs)
    else:
        children, free = [_marked(child, False)[0] for child in node.children], False
    return replace(node, children=tuple(children)), free


def _marked_chain(nodes: Sequence[Node], free: bool) -> tuple[list[Node], bool]:
    children: list[Node] = []
    for child in reversed(nodes):
        marked, free = _marked(child, free)
        children.append(marked)
    return children[::-1], free


def _followed(node: Node, shifted: bool) -> tuple[Node, bool]:
    """The node with its moving means marked, and whether its output may be shifted, given its input."""
    spec = node.spec
    if isinstance(spec, Container):
        return _followed_container(node, shifted)
    if shifted and spec.subtracts_bias:
        parameters = tuple(
            replace(p, null_direction=_FOLLOWS) if p.name == "moving_mean" else p for p in node.parameters
        )
        node = replace(node, parameters=parameters)
    own = any(p.name in _SHIFTS and p.null_direction for p in node.parameters)
    return node, own or (shifted and spec.passes_shift(node.input_shape))


def _followed_container(node: Node, shifted: bool) -> tuple[Node, bool]:
    spec = node.spec
    children: list[Node] = []
    if isinstance(spec, Add | Concatenate):
        pairs = [_followed(child, shifted) for child in node.children]
        children, after = [child for child, _ in pairs], any(shift for _, shift in pairs)
    else:
        after = shifted
        for child in node.children:
            marked, after = _followed(child, after)
            children.append(marked)
        after = after or (shifted and isinstance(spec, Residual))
    return replace(node, children=tuple(children)), after
