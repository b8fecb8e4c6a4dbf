"""Torch models of the zoo that plain arguments cannot name; imported only in torch's process."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import nn
from transformers.models.bloom.modeling_bloom import BloomGelu


def hugging_face(name: str, model: dict[str, Any] | None = None, **config: Any) -> nn.Module:
    """A class of transformers, unmodified and without pretrained weights.

    Args:
        name: of the class.
        model: arguments of the class besides its configuration.
        config: fields of its configuration.
    """
    kind = getattr(transformers, name)
    return kind(kind.config_class(**config), **(model or {}))


def hugging_face_widened(name: str, **arguments: Any) -> nn.Module:
    """As `hugging_face`, with float64 wherever the package's own code asks for float32, and BLOOM's GELU, whose
    constants have eight digits, with all of them.

    An experiment that changes this process for good: what it takes away was due to that.
    """
    torch.float32 = torch.float = torch.float64  # type: ignore[misc]
    torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign]
    model = hugging_face(name, **arguments)
    for layer in list(model.modules()):
        for child, found in layer.named_children():
            if isinstance(found, BloomGelu):
                setattr(layer, child, nn.GELU(approximate="tanh"))
    return model
