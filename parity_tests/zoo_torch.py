"""Torch models of the zoo that plain arguments cannot name; imported only in torch's process."""

from __future__ import annotations

from typing import Any

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


def with_exact_gelu(name: str, **arguments: Any) -> nn.Module:
    """As `hugging_face`, with all digits in BLOOM's GELU, whose constants have eight."""
    model = hugging_face(name, **arguments)
    for layer in list(model.modules()):
        for child, found in layer.named_children():
            if isinstance(found, BloomGelu):
                setattr(layer, child, nn.GELU(approximate="tanh"))
    return model
