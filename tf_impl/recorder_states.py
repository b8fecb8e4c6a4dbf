"""What a recorder reads and sets where a script's states are kept or followed: weights, buffers, slots."""

from __future__ import annotations

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

    def __init__(self, model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
        self._model, self._optimizer = model, optimizer
        self._kind, self._table = next(
            (SLOTS[cls] for cls in type(optimizer).__mro__ if cls in SLOTS), ("", {})
        )

    def tensors(self) -> dict[str, Any]:
        """Those of the model, without states of random generators."""
        return {name: tensor for name, tensor in names.tensors(self._model).items() if SEEDS not in name}

    def slots(self) -> dict[str, dict[str, Any]]:
        """Those of a class that is not known all as one."""
        if not self._optimizer.built:
            return {}
        if not self._kind:
            known = {id(self._optimizer.iterations), id(self._optimizer._learning_rate)}
            rest = [v for v in self._optimizer.variables if id(v) not in known and "float" in str(v.dtype)]
            return {"own": {variable.path.partition("/")[2]: variable for variable in rest}}
        named = {id(v): name for name, v in without_ties(self.tensors()).items()}
        trained = self._optimizer._trainable_variables
        return {
            slot: {named[id(v)]: own for v, own in zip(trained, variables, strict=True) if id(v) in named}
            for slot, attribute in self._table.items()
            if (variables := getattr(self._optimizer, attribute, None))
        }

    def slot_factor(self, slot: str) -> float:
        """By which torch's slot is multiplied to be Keras's."""
        if not self._kind:
            return float("nan")
        if slot != "momentum_velocity":
            return 1.0
        rate = float(keras.ops.convert_to_numpy(self._optimizer.learning_rate))
        return -rate if self._kind == "sgd" else rate
