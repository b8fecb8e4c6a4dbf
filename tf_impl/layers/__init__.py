"""LayerSpec -> keras layer: one registered function per spec class, in files named as those of the specs.

Variables carry the canonical tensor names as attributes (`kernel`, `gamma`, ...), in canonical
layout, so no translation table is needed on this side.
"""

from parity.tf_impl.layers import (  # noqa: F401 - they register their layers
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
from parity.tf_impl.layers.registry import EmptySafe, build_layer

__all__ = ["EmptySafe", "build_layer"]
