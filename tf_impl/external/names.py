"""The layers and the tensors of a user's model by the names of its outline; tensors read, written, and updated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import keras
import tensorflow as tf

from parity.common.base.errors import ExternalModelError
from parity.common.external.process.calls import free_name
from parity.common.external.process.pass_result import Array, Arrays
from parity.common.state.canonical import without_ties
from parity.tf_impl.external import outline
from parity.tf_impl.private_names import path_of


def layers(model: keras.Layer) -> dict[str, keras.Layer]:
    """Every layer below the model by its path, parents before their children; a shared one once.

    More than the outline lists: also what only holds others, and the insides of layers of a known kind. Not what
    a recurrent layer calls at every step.
    """
    found = dict(outline.layers_of(model))
    known = {id(layer) for layer in found.values()} | {id(model)}
    start = f"{model.name}/"
    seen: set[int] = set()
    left: list[keras.Layer] = [model]
    while left:
        layer = left.pop()
        if id(layer) in seen:
            continue
        seen.add(id(layer))
        if id(layer) not in known:
            found[free_name((path_of(layer) or layer.name).removeprefix(start), found)] = layer
        if not isinstance(layer, keras.layers.RNN):
            left += reversed(layer._layers)
    return {path: layer for path, layer in found.items() if layer is not model}


def tensors(model: keras.Layer) -> dict[str, keras.Variable]:
    """The live weights and buffers by the names of the outline; a tied one under each of its names."""
    return {name: variable for _, _, name, variable in outline.owned(model)}


def trained(model: keras.Layer) -> dict[str, keras.Variable]:
    """The tensors that are trained, each once, by the first of its names."""
    ours = {id(variable) for variable in model.trainable_weights}
    return {name: each for name, each in without_ties(tensors(model)).items() if id(each) in ours}


def stored(model: keras.Layer) -> dict[str, keras.Variable]:
    """Return all weights and buffers by native name; raises ExternalModelError where some have no shape yet."""
    found = tensors(model)
    if not found and not model.built:
        raise ExternalModelError(
            "the model has no weights before the first pass; ask for the outline with inputs first"
        )
    return found


def assign(tensor: keras.Variable, array: Array) -> None:
    """Set a tensor to values of its shape."""
    tensor.assign(array)


def update(
    optimizer: keras.Optimizer,
    trained: Mapping[str, keras.Variable],
    gradients: Sequence[Arrays],
    begin: Callable[[int], None],
) -> None:
    """Make one update by each set of gradients.

    Args:
        optimizer: a new one.
        trained: the trained tensors by native name, which are changed.
        gradients: by native name, of the tensor's shape; a tensor that a set leaves out has no gradient in that update.
        begin: called before each update, with its number.
    """
    optimizer.build(list(trained.values()))
    for number, given in enumerate(gradients):
        begin(number)
        present = [name for name in trained if name in given]
        # Of a table as `fit` has it: a row for each time that it is read.
        tensors = [
            given[name]
            if isinstance(given[name], tf.IndexedSlices)
            else tf.constant(given[name], trained[name].dtype)
            for name in present
        ]
        optimizer.apply(tensors, [trained[name] for name in present])
