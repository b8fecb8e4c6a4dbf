"""What a recorder reads and sets where a script's states are kept or followed: weights, buffers, slots."""

from __future__ import annotations

from typing import Any

import keras

from parity.common.external.process.calls import without_ties
from parity.common.state.canonical import State
from parity.tf_impl.external import names
from parity.tf_impl.external.calling import array_of
from parity.tf_impl.external.checkpoints import SLOTS

# States of random generators are no part of a model.
SEEDS = "seed_generator_state"


class LiveState:
    """A model and its optimizer, as `parity.common.record.followed.Live`. Momentum of SGD and RMSprop is torch's
    times the learning rate: see `parity.common.external.checkpoints`."""

    def __init__(self, model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
        self._model, self._optimizer = model, optimizer
        self._kind, self._table = next(
            (SLOTS[cls] for cls in type(optimizer).__mro__ if cls in SLOTS), ("", {})
        )

    def tensors_now(self) -> State:
        """Weights and buffers by the first of their names, copied."""
        return {n: array_of(v) for n, v in self._once().items() if SEEDS not in n}

    def slots_now(self) -> dict[str, State]:
        """By canonical slot where the optimizer's class is known, else all as one; copied."""
        return {slot: {n: array_of(v) for n, v in of_slot.items()} for slot, of_slot in self._slots().items()}

    def first_names(self) -> dict[str, str]:
        """Of each name of a tied tensor the first one."""
        first = {id(tensor): name for name, tensor in self._once().items()}
        return {name: first[id(tensor)] for name, tensor in names.tensors(self._model).items()}

    def put(self, tensors: State) -> None:
        """Set weights and buffers."""
        live = self._once()
        for name, array in tensors.items():
            names.assign(live[name], array)

    def put_slots(self, slots: dict[str, State]) -> None:
        """Set slots that there are."""
        live = self._slots()
        for slot, of_slot in slots.items():
            for name, array in of_slot.items():
                names.assign(live[slot][name], array)

    def slot_factor(self, slot: str) -> float:
        """By which torch's slot is multiplied to be Keras's; NaN where that is not known."""
        if not self._kind:
            return float("nan")
        if slot != "momentum_velocity":
            return 1.0
        rate = float(self._optimizer.learning_rate)
        return -rate if self._kind == "sgd" else rate

    def _once(self) -> dict[str, Any]:
        return without_ties(names.tensors(self._model))

    def _slots(self) -> dict[str, dict[str, Any]]:
        if not self._optimizer.built:
            return {}
        if not self._kind:
            known = {id(self._optimizer._iterations), id(self._optimizer._learning_rate)}
            rest = [v for v in self._optimizer.variables if id(v) not in known and "float" in str(v.dtype)]
            return {"own": {variable.path.partition("/")[2]: variable for variable in rest}}
        named = {id(v): name for name, v in without_ties(names.tensors(self._model)).items()}
        trained = self._optimizer._trainable_variables
        return {
            slot: {named[id(v)]: own for v, own in zip(trained, variables, strict=True) if id(v) in named}
            for slot, attribute in self._table.items()
            if (variables := getattr(self._optimizer, attribute, None))
        }
