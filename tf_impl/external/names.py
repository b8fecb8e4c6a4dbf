"""What the layers and the tensors of a user's model are called: as its outline calls them."""

from __future__ import annotations

import keras

from parity.common.external.process.calls import free_name, without_ties
from parity.tf_impl.external import outline


def layers(model: keras.Layer) -> dict[str, keras.Layer]:
    """Every layer below the model by its path, parents before their children; a shared one once.

    More than the outline lists: also what only holds others, and the insides of layers of a known kind. Not what
    a recurrent layer calls at every step.
    """
    found = dict(outline.layers_of(model))
    known = {id(layer) for layer in found.values()} | {id(model)}
    start = f"{model.name}/"
    for layer in _below(model):
        if id(layer) in known:
            continue
        found[free_name((layer.path or layer.name).removeprefix(start), found)] = layer
    return {path: layer for path, layer in found.items() if layer is not model}


def tensors(model: keras.Layer) -> dict[str, keras.Variable]:
    """The live weights and buffers by the names of the outline; a tied one under each of its names."""
    return {name: variable for _, _, name, variable in outline.owned(model)}


def trained(model: keras.Layer) -> dict[str, keras.Variable]:
    """The tensors that are trained, each once, by the first of its names."""
    ours = {id(variable) for variable in model.trainable_weights}
    return {name: each for name, each in without_ties(tensors(model)).items() if id(each) in ours}


def _below(model: keras.Layer) -> list[keras.Layer]:
    """Layers in depth-first order, each once."""
    seen: dict[int, keras.Layer] = {}

    def visit(layer: keras.Layer) -> None:
        if id(layer) in seen:
            return
        seen[id(layer)] = layer
        if not isinstance(layer, keras.layers.RNN):
            for child in layer._flatten_layers(include_self=False, recursive=False):
                visit(child)

    visit(model)
    return list(seen.values())
