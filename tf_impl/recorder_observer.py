"""What a recorder observes of a model for `ScriptChecks`."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import numpy as np

from parity.common.record.script_checks import Observer, StepObservation, frozen_names
from parity.common.record.script_taps import is_tapped
from parity.tf_impl.external import names


class ModelObserver(Observer):
    """Observes a model without changing it."""

    def __init__(
        self, model: keras.Model, optimizer: keras.optimizers.Optimizer | None, frozen: Sequence[str]
    ) -> None:
        """Begin.

        Args:
            model: that is trained.
            optimizer: its own, if it has one.
            frozen: names of tensors, or prefixes of names, that must not change.

        Raises:
            RecordError: the model has no tensor of such a name.
        """
        self._model, self._optimizer = model, optimizer
        tensors = names.tensors(model)
        self._frozen = {name: np.array(tensors[name]) for name in frozen_names(tensors, frozen)}
        self._step = 0
        self._compiled = optimizer is not None and self._is_compiled()

    def _is_compiled(self) -> bool:
        """Whether the model trains by the recorder's optimizer itself, as `fit` does."""
        return getattr(self._model, "optimizer", None) is self._optimizer

    def observe(self) -> StepObservation:
        """Return what was observed in the step that ends."""
        looks, self._step = is_tapped(self._step, None), self._step + 1
        replaced = int(self._compiled and not self._is_compiled())
        if not looks:
            return StepObservation(replaced=replaced)
        tensors = names.tensors(self._model)
        changed = (n for n, was in self._frozen.items() if not np.array_equal(was, np.array(tensors[n])))
        dtypes = {name: str(variable.dtype) for name, variable in tensors.items()}
        return StepObservation(dtypes=dtypes, changed=next(changed, None), replaced=replaced)
