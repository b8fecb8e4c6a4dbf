"""Layer specs: one frozen class a layer, with its shapes, its parameters and its conventions.

A new layer is one class here and one function in each `layers` package of tf_impl and torch_impl;
the three packages have the same file names. Shapes leave out the batch dimension; images are HWC,
sequences (tokens, features). Canonical layouts are Keras's: convolution kernels HWIO, dense kernels
(in, out).
"""

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from parity.common.spec.layers.attention import CrossAttention, SelfAttention
from parity.common.spec.layers.base import Initializer, LayerSpec, Node, ParameterSpec, Shape
from parity.common.spec.layers.containers import (
    Add,
    Concatenate,
    Container,
    Identity,
    Repeat,
    Residual,
    Sequential,
)
from parity.common.spec.layers.convolution import (
    Conv1D,
    Conv1DTranspose,
    Conv2D,
    Conv2DTranspose,
    DepthwiseConv2D,
    SeparableConv2D,
)
from parity.common.spec.layers.core import (
    Activation,
    ActivityPenalty,
    Dense,
    Flatten,
    Permute,
    PReLU,
    Reshape,
    Slice,
)
from parity.common.spec.layers.embedding import (
    ClassToken,
    Embedding,
    PositionEmbedding,
    SegmentEmbedding,
    SinusoidalPositions,
    TakeToken,
    TiedEmbedding,
)
from parity.common.spec.layers.imported import ExternalTensor, Imported, KeyedDropout, Pair
from parity.common.spec.layers.normalization import BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RMSNorm
from parity.common.spec.layers.pooling import (
    AveragePool1D,
    AveragePool2D,
    GlobalAveragePool,
    GlobalMaxPool,
    MaxPool1D,
    MaxPool2D,
    Patchify,
    ZeroPad2D,
)
from parity.common.spec.layers.random import Dropout
from parity.common.spec.layers.recurrent import GRU, LSTM, SimpleRNN
from parity.common.spec.layers.resizing import Resize, UpSampling2D

__all__ = [
    "GRU",
    "LSTM",
    "Activation",
    "ActivityPenalty",
    "Add",
    "AnyLayer",
    "AveragePool1D",
    "AveragePool2D",
    "BatchNorm",
    "ClassToken",
    "Concatenate",
    "Container",
    "Conv1D",
    "Conv1DTranspose",
    "Conv2D",
    "Conv2DTranspose",
    "CrossAttention",
    "Dense",
    "DepthwiseConv2D",
    "Dropout",
    "Embedding",
    "ExternalTensor",
    "Flatten",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "GroupNorm",
    "Identity",
    "Imported",
    "Initializer",
    "InstanceNorm",
    "KeyedDropout",
    "LayerNorm",
    "LayerSpec",
    "MaxPool1D",
    "MaxPool2D",
    "Node",
    "PReLU",
    "Pair",
    "ParameterSpec",
    "Patchify",
    "Permute",
    "PositionEmbedding",
    "RMSNorm",
    "Repeat",
    "Reshape",
    "Residual",
    "Resize",
    "SegmentEmbedding",
    "SelfAttention",
    "SeparableConv2D",
    "Sequential",
    "Shape",
    "SimpleRNN",
    "SinusoidalPositions",
    "Slice",
    "TakeToken",
    "TiedEmbedding",
    "UpSampling2D",
    "ZeroPad2D",
]

if TYPE_CHECKING:
    AnyLayer = LayerSpec
else:
    _kinds = [cls for cls in LayerSpec.known if "kind" in cls.__annotations__]
    AnyLayer = Annotated[Union[tuple(_kinds)], Field(discriminator="kind")]  # noqa: UP007
    for _kind in LayerSpec.known:
        _kind.model_rebuild(_types_namespace={"AnyLayer": AnyLayer})
