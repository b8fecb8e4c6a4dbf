"""The tensors of a user's model as arrays by native name, and back."""

from __future__ import annotations

import keras

from common.errors import ForeignError
from common.foreign.process.calling import check_tensors
from common.foreign.process.passed import Arrays
from tf_impl.foreign import names
from tf_impl.foreign.calling import array_of


def read(model: keras.Layer) -> Arrays:
    """All weights and buffers; raises ForeignError where some have no shape yet."""
    found = names.tensors(model)
    if not found and not model.built:
        raise ForeignError(
            "the model has no weights before the first pass; ask for the outline with inputs first"
        )
    return {name: array_of(variable) for name, variable in found.items()}


def write(model: keras.Layer, state: Arrays) -> None:
    """Set the tensors that are named; raises ForeignError, and sets none, where a name or a shape is wrong."""
    found = names.tensors(model)
    check_tensors({name: tuple(variable.shape) for name, variable in found.items()}, state)
    for name, array in state.items():
        found[name].assign(array)
