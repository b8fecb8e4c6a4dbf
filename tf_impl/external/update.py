"""Updates of a user's model by given gradients, with the user's optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from parity.common.external.process.calling import check_tensors
from parity.common.external.process.pass_result import Arrays
from parity.common.spec.external.target import Target
from parity.tf_impl.external import load, names
from parity.tf_impl.external.calling import array_of


def update(
    model: keras.Layer, optimizer: Target, gradients: Sequence[Arrays], keep: bool = False
) -> dict[str, Any]:
    """Make a new optimizer, and one update for each set of gradients.

    Args:
        optimizer: what makes it; see `load.build_optimizer`.
        gradients: by native name; a trained tensor that a set leaves out has no gradient in that update.
        keep: whether the model stays updated; else its tensors are restored.

    Returns:
        'tensors': the trained tensors after the last update by name; 'slots': slot -> name -> array.

    Raises:
        ExternalModelError: the optimizer cannot be made, a name or a shape is wrong.
    """
    trained = names.trained(model)
    for given in gradients:
        check_tensors({name: tuple(variable.shape) for name, variable in trained.items()}, given)
    made = load.build_optimizer(optimizer, model)
    before = {name: array_of(variable) for name, variable in trained.items()}
    try:
        made.build(list(trained.values()))
        for given in gradients:
            present = [name for name in trained if name in given]
            tensors = [tf.constant(given[name], trained[name].dtype) for name in present]
            made.apply(tensors, [trained[name] for name in present])
        slots: dict[str, Arrays] = {}
        for name, variable in trained.items():
            start = variable.path.replace("/", "_") + "_"
            for variable_of_slot in made.variables:
                if variable_of_slot.name.startswith(start):
                    slots.setdefault(variable_of_slot.name.removeprefix(start), {})[name] = array_of(
                        variable_of_slot
                    )
        return {"tensors": {name: array_of(variable) for name, variable in trained.items()}, "slots": slots}
    finally:
        if not keep:
            for name, variable in trained.items():
                variable.assign(before[name])
