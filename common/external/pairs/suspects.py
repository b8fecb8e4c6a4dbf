"""The differences of settings that may be why two mapped models deviate."""

from __future__ import annotations

from collections.abc import Sequence

from parity.common.external.lint.lint import Difference, lint
from parity.common.external.pairs.points import paired_layers
from parity.common.spec.external.mapping import Mapping
from parity.common.spec.external.outline import Outline


def suspects_of(outlines: tuple[Outline, Outline], mapping: Mapping) -> list[Difference]:
    """What lint says of Keras's and torch's model, without layers and biases that the other one has elsewhere."""
    pairs = [pair for pair in mapping.tensors if pair.keras and pair.torch]
    mapped = {name for pair in pairs for name in (*pair.keras, *pair.torch)}

    def is_elsewhere(found: Difference) -> bool:
        """Whether all that one side has more is the counterpart of something."""
        if found.setting not in ("counterpart", "use_bias"):
            return False
        in_torch = found.keras_value in (None, False)
        layer = found.torch if in_torch else found.keras
        more = [
            info.name in mapped
            for info in outlines[in_torch].tensors
            if info.layer == layer and (found.setting == "counterpart" or info.role == "bias")
        ]
        return bool(more) and all(more)

    return [found for found in lint(*outlines, paired_layers(*outlines, mapping)) if not is_elsewhere(found)]


def with_effect(differences: Sequence[Difference], mapping: Mapping) -> list[Difference]:
    """Of two models whose outputs agree those differences that may still count: what one layer does here, another does there.

    All of them where a tensor of one side alone has a value that changes nothing yet.
    """
    alone = not all(pair.keras and pair.torch for pair in mapping.tensors)
    return [one for one in differences if alone or one.changes != "forward"]
