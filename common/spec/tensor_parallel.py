"""Which layers of a model tensor parallelism divides among ranks, and how."""

from __future__ import annotations

from typing import Literal

from parity.common.base.errors import SpecError
from parity.common.spec.layers import Activation, Dense, Node, Residual, Sequential
from parity.common.spec.layers.attention import AttentionBase
from parity.common.spec.model import walk

Cut = Literal["heads", "columns", "rows"]


def division(tree: Node, ranks: int) -> dict[str, Cut]:
    """How each divided layer is cut, by its path.

    Attention by its heads. Of two dense layers with nothing but activations between them the first by
    its outputs and the second by its inputs, so that only what the second gives must be summed. All
    other layers are whole on every rank.

    Raises:
        SpecError: nothing can be divided, or not evenly, or what is whole would not come out whole.
    """
    cuts: dict[str, Cut] = {}
    for node in walk(tree):
        if getattr(node.spec, "statistics", "") == "global":
            raise SpecError(
                f"tensor_parallel: batch norm {node.path!r} takes its statistics over all ranks, of which here"
                f" {ranks} share each sample; use layer_norm or group_norm, or strategy ddp"
            )
        if isinstance(node.spec, AttentionBase):
            groups = node.spec.groups
            which = "" if groups == node.spec.heads else " of keys and values"
            _expect(groups % ranks == 0, node, f"{groups} heads{which}", ranks)
            cuts[node.path] = "heads"
        elif isinstance(node.spec, Sequential | Residual):
            for wide, narrow in _pairs(node):
                units = wide.output_shape[-1]
                _expect(units % ranks == 0, wide, f"{units} units", ranks)
                cuts |= {wide.path: "columns", narrow.path: "rows"}
    if not cuts:
        raise SpecError(
            "tensor_parallel: the model has nothing to divide, neither attention nor two dense layers with only"
            " an activation between them; take strategy ddp, fsdp1 or fsdp2"
        )
    return cuts


def _expect(even: bool, node: Node, what: str, ranks: int) -> None:
    if not even:
        raise SpecError(
            f"tensor_parallel: layer {node.path!r} has {what}, which {ranks} ranks cannot share evenly;"
            " set ranks to a divisor"
        )


def _pairs(node: Node) -> list[tuple[Node, Node]]:
    """Neighbouring dense layers among a chain of children; no layer is in two pairs."""
    pairs, wide = [], None
    for child in node.children:
        if isinstance(child.spec, Dense):
            if wide is None:
                wide = child
            else:
                pairs.append((wide, child))
                wide = None
        elif not (isinstance(child.spec, Activation) and child.spec.function not in _ACROSS):
            wide = None
    return pairs


# Activations that look at all features of a token.
_ACROSS = ("softmax", "log_softmax")
