"""LayerSpec -> nn.Module: one registered function per spec class, in files named as those of the specs.

Activations keep canonical shapes between layers (images NHWC). A convolution sees them permuted to
NCHW, which for a contiguous NHWC tensor is exactly PyTorch's channels_last memory format.
"""

from parity.torch_impl.layers import (  # noqa: F401 - they register their layers
    attention,
    containers,
    convolution,
    core,
    embedding,
    imported,
    normalization,
    pooling,
    random,
    recurrent,
    resizing,
)
from parity.torch_impl.layers.registry import build_layer

__all__ = ["build_layer"]
