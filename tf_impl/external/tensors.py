"""The tensors of a user's model as arrays by native name, and back."""

from __future__ import annotations

import keras

from parity.common.base.errors import ExternalModelError
from parity.common.external.process.calling import check_tensors
from parity.common.external.process.pass_result import Arrays
from parity.tf_impl.external import names
from parity.tf_impl.external.calling import array_of


def read(model: keras.Layer) -> Arrays:
    """All weights and buffers; raises ExternalModelError where some have no shape yet."""
    found = names.tensors(model)
    if not found and not model.built:
        raise ExternalModelError(
            "the model has no weights before the first pass; ask for the outline with inputs first"
        )
    return {name: array_of(variable) for name, variable in found.items()}


def write(model: keras.Layer, state: Arrays) -> None:
    """Set the tensors that are named; raises ExternalModelError, and sets none, where a name or a shape is wrong."""
    found = names.tensors(model)
    check_tensors({name: tuple(variable.shape) for name, variable in found.items()}, state)
    for name, array in state.items():
        found[name].assign(array)
