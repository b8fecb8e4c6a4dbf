"""Layer specs: one frozen class a layer, with its shapes, its parameters and its conventions.

A new layer is one class here and one function in each `layers` package of tf_impl and torch_impl;
the three packages have the same file names. Shapes leave out the batch dimension; images are HWC,
sequences (tokens, features). Canonical layouts are Keras's: convolution kernels HWIO, dense kernels
(in, out).
"""

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from common.spec.layers.attention import SelfAttention
from common.spec.layers.base import Initializer, LayerSpec, Node, ParameterSpec, Shape
from common.spec.layers.containers import Add, Concatenate, Container, Repeat, Residual, Sequential
from common.spec.layers.convolution import Conv2D
from common.spec.layers.core import Activation, Dense, Flatten
from common.spec.layers.embedding import PositionEmbedding
from common.spec.layers.normalization import BatchNorm, LayerNorm
from common.spec.layers.pooling import GlobalAveragePool, MaxPool2D, Patchify
from common.spec.layers.random import Dropout

__all__ = [
    "Activation",
    "Add",
    "AnyLayer",
    "BatchNorm",
    "Concatenate",
    "Container",
    "Conv2D",
    "Dense",
    "Dropout",
    "Flatten",
    "GlobalAveragePool",
    "Initializer",
    "LayerNorm",
    "LayerSpec",
    "MaxPool2D",
    "Node",
    "ParameterSpec",
    "Patchify",
    "PositionEmbedding",
    "Repeat",
    "Residual",
    "SelfAttention",
    "Sequential",
    "Shape",
]

if TYPE_CHECKING:
    AnyLayer = LayerSpec
else:
    _kinds = [cls for cls in LayerSpec.known if "kind" in cls.__annotations__]
    AnyLayer = Annotated[Union[tuple(_kinds)], Field(discriminator="kind")]  # noqa: UP007
    for _kind in LayerSpec.known:
        _kind.model_rebuild(_types_namespace={"AnyLayer": AnyLayer})
