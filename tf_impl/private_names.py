"""What we use of TensorFlow and Keras that they do not promise, and what older versions (2.16, 3.3 on) have elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parity.common.base.errors import RunError
from parity.common.base.package import check_versions

# Before anything that an older version lacks is imported.
check_versions("tensorflow", "keras")

import keras
from keras.src import backend
from keras.src.backend.common import dtypes, variables
from keras.src.backend.common.name_scope import current_path
from keras.src.layers.regularization.spatial_dropout import BaseSpatialDropout
from keras.src.losses import loss as loss_module
from keras.src.losses.losses import LossFunctionWrapper
from keras.src.utils.naming import reset_uids, to_snake_case
from tensorflow.python.distribute import collective_all_reduce_strategy as stock_workers
from tensorflow.python.distribute.cross_device_utils import CollectiveReplicaLauncher
from tensorflow.python.eager import context, executor
from tensorflow.python.eager import record as gradient_record
from tensorflow.python.framework import op_callbacks
from tensorflow.python.ops import image_ops_impl as image_ops
from tensorflow.python.ops import math_ops

__all__ = [
    "BaseSpatialDropout",
    "CollectiveReplicaLauncher",
    "CommonVariable",
    "LossFunctionWrapper",
    "backend",
    "context",
    "current_path",
    "executor",
    "gradient_record",
    "image_ops",
    "in_symbolic_scope",
    "keras_layer",
    "keras_layers",
    "keras_op",
    "loss_module",
    "masked_as",
    "math_ops",
    "op_callbacks",
    "path_of",
    "reset_uids",
    "stock_workers",
    "to_snake_case",
    "whole_numbers_in_32_bits",
]

# KerasVariable before 3.7.
CommonVariable = getattr(variables, "Variable", None) or variables.KerasVariable
try:  # 3.6
    mask_of, set_mask = backend.get_keras_mask, backend.set_keras_mask
except AttributeError:

    def mask_of(x: Any) -> Any:
        """The mask that a tensor carries from layer to layer, or None."""
        return getattr(x, "_keras_mask", None)

    def set_mask(x: Any, mask: Any) -> None:
        """Have a tensor carry a mask."""
        x._keras_mask = mask


def masked_as(tensor: Any, other: Any) -> Any:
    """Another tensor, with the mask of Keras's that the first one carries: losses and layers behind it go by that."""
    mask = mask_of(tensor)
    if mask is not None:
        set_mask(other, mask)
    return other


def whole_numbers_in_32_bits() -> None:
    """Have Keras make int32 of a code's whole numbers (`ops.arange(n)`), as with floatx float32, which the code was written for, whatever floatx is."""
    dtypes._resolve_weak_type = _resolved


_resolve = dtypes._resolve_weak_type


def _resolved(dtype: str, precision: str = "32") -> Any:
    return _resolve(dtype, "32" if dtype.startswith(("int", "uint")) else precision)


try:  # 3.4
    from keras.src.backend.common.symbolic_scope import in_symbolic_scope
except ImportError:

    def in_symbolic_scope() -> bool:
        """Whether a call only finds out shapes."""
        return False


# The first versions of Keras that have a layer which not every supported one has.
_SINCE = {"RMSNormalization": "3.9", "ReversibleEmbedding": "3.12", "dot_product_attention": "3.6"}


def path_of(layer: keras.layers.Layer) -> str | None:
    """Where a layer was built, as its variables' paths begin; None: not yet."""
    if hasattr(layer, "path"):  # 3.4
        return layer.path
    if getattr(layer.build, "_is_default", False):
        return None
    within = layer._parent_path
    return layer.name if not within else f"{within}/{layer.name}"


def keras_layer(name: str) -> type[keras.layers.Layer]:
    """One of Keras's layers that older versions lack; raises RunError where this one does."""
    return _found(keras.layers, name)


def keras_op(name: str) -> Callable[..., Any]:
    """One of Keras's operations that older versions lack; raises RunError where this one does."""
    return _found(keras.ops, name)


def _found(owner: Any, name: str) -> Any:
    if not hasattr(owner, name):
        raise RunError(f"keras {keras.__version__} has no {name}; take keras {_SINCE[name]} or newer")
    return getattr(owner, name)


def keras_layers(*names: str) -> tuple[type[keras.layers.Layer], ...]:
    """Those of Keras's layers that this version has."""
    return tuple(getattr(keras.layers, name) for name in names if hasattr(keras.layers, name))
