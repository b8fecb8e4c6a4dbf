"""Images made larger or smaller by interpolation."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parity.common.spec import Node
from parity.common.spec import layers as spec
from parity.torch_impl.layers.registry import Function, register


@register(spec.UpSampling2D, spec.Resize)
def resizing(node: Node) -> nn.Module:
    layer = node.spec
    before, after = node.input_shape[:2], node.output_shape[:2]
    pairs = list(zip(before, after, strict=True))
    if layer.interpolation == "nearest":
        if not any(b % a for a, b in pairs):
            return _own(after, mode="nearest")
        rows, columns = (torch.from_numpy(layer.nearest_cells(*pair)) for pair in pairs)
        return Function(lambda x: x[:, rows.to(x.device)[:, None], columns.to(x.device)])
    if layer.interpolation == "bilinear":
        return _own(after, mode="bilinear", align_corners=layer.align_corners)
    # PyTorch's own cubic has a fixed coefficient.
    rows, columns = (torch.from_numpy(layer.matrix(*pair)) for pair in pairs)

    def apply(x: Tensor) -> Tensor:
        x = rows.to(x) @ x.flatten(2)
        return columns.to(x) @ x.unflatten(2, (before[1], -1))

    return Function(apply)


def _own(size: tuple[int, ...], **how: object) -> nn.Module:
    return Function(lambda x: F.interpolate(x.movedim(-1, 1), size, **how).movedim(1, -1))
