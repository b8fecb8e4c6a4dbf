"""What a recorder reads and sets where a script's states are kept or followed: weights, buffers, slots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import keras

from parity.common.record.live import Live
from parity.common.state.canonical import without_ties
from parity.tf_impl.external import names
from parity.tf_impl.external.calling import array_of
from parity.tf_impl.external.checkpoints import SLOTS

# States of random generators are no part of a model.
SEEDS = "seed_generator_state"


class LiveState(Live):
    """Keras's. Momentum of SGD and RMSprop is torch's times the learning rate: see `parity.common.external.checkpoints`."""

    read, assign = staticmethod(array_of), staticmethod(names.assign)

    def __init__(self, model: keras.Model, optimizers: Sequence[keras.optimizers.Optimizer]) -> None:
        self._model, self._optimizers = model, optimizers

    def tensors(self) -> dict[str, Any]:
        """Those of the model, without states of random generators."""
        return {name: tensor for name, tensor in names.tensors(self._model).items() if SEEDS not in name}

    def slots(self) -> dict[str, dict[str, Any]]:
        """Those of a class that is not known all as one."""
        found: dict[str, dict[str, Any]] = {}
        named = {id(v): name for name, v in without_ties(self.tensors()).items()}
        for optimizer in self._optimizers:
            if not optimizer.built:
                continue
            kind, table = _known(optimizer)
            if not kind:
                known = {id(optimizer.iterations), id(optimizer._learning_rate)}
                rest = [v for v in optimizer.variables if id(v) not in known and "float" in str(v.dtype)]
                found.setdefault("own", {}).update({v.path.partition("/")[2]: v for v in rest})
            trained = optimizer._trainable_variables
            for slot, attribute in table.items():
                variables = getattr(optimizer, attribute, None) or ()
                for variable, own in zip(trained, variables, strict=bool(variables)):
                    if id(variable) in named:
                        found.setdefault(slot, {})[named[id(variable)]] = own
        return found

    def updates_by_itself(self) -> bool:
        """By its update_step()."""
        return any(type(each).update_step is not _base(each).update_step for each in self._optimizers)

    def groups(self) -> list[list[str]]:
        """Those of each optimizer that was built, and that the model has."""
        named = {id(v): name for name, v in without_ties(self.tensors()).items()}
        built = (each._trainable_variables for each in self._optimizers if each.built)
        return [[named[id(v)] for v in variables if id(v) in named] for variables in built]

    def slot_factors(self, slot: str) -> dict[str, float]:
        """By which torch's slot is multiplied to be Keras's."""
        found = {}
        named = {id(v): name for name, v in without_ties(self.tensors()).items()}
        for optimizer in (each for each in self._optimizers if each.built):
            kind, factor = _known(optimizer)[0], 1.0
            if not kind:
                factor = math.nan
            elif slot == "momentum_velocity":
                rate = float(keras.ops.convert_to_numpy(optimizer.learning_rate))
                factor = -rate if kind == "sgd" else rate
            found |= {named[id(v)]: factor for v in optimizer._trainable_variables if id(v) in named}
        return found


def _known(optimizer: keras.optimizers.Optimizer) -> tuple[str, dict[str, str]]:
    """An optimizer's kind and Keras's attributes of its slots by ours; "" of a class that is not known."""
    return SLOTS.get(_base(optimizer), ("", {}))


def _base(optimizer: keras.optimizers.Optimizer) -> type[keras.optimizers.Optimizer]:
    """The class that is known of those that an optimizer's derives from."""
    return next((cls for cls in type(optimizer).__mro__ if cls in SLOTS), keras.optimizers.Optimizer)
