"""Keras's `fit`, right and with mistakes that show without a second run: `python -m parity_tests.recorded.checked_keras OUT
NAME ...`. What is due: `checked.KERAS`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np

from parity.tf_impl.recorder import Recorder, RecorderCallback
from parity_tests.recorded.checked import BATCH, LATER, STEPS


class Idle(keras.optimizers.SGD):
    """Whose update is lost."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Compute it and assign nothing."""
        variable - learning_rate * gradient


def fit(out: Path, name: str) -> None:
    """One training."""
    keras.utils.set_random_seed(3)
    body = keras.layers.Dense(8, "relu", name="body", trainable=name != "frozen by its layer")
    head = keras.layers.Dense(3, name="head")
    model = keras.Sequential([keras.Input((6,)), body, keras.layers.BatchNormalization(), head])
    model.compile(
        Idle(0.1) if name == "moves nothing" else keras.optimizers.SGD(0.1),
        lambda y, made: keras.ops.mean(
            keras.ops.square((keras.ops.stop_gradient(made) if name == "no gradient" else made) - y)
            + (0 * keras.ops.sum(made) if name == "no gradient" else 0)
        ),
    )
    random = np.random.default_rng(4)
    x, y = (random.standard_normal((BATCH * STEPS, size)).astype(np.float32) for size in (6, 3))
    if name == "not finite":
        y[LATER * BATCH] = np.nan
    if name in ("compiled again", "fitted before"):
        halves = np.split(np.arange(BATCH * STEPS), 2 if name == "compiled again" else 1)
        if name == "fitted before":
            model.fit(x[:BATCH], y[:BATCH], BATCH, verbose=0)
        with Recorder(out, model, model.optimizer) as recorder:
            step = keras.callbacks.LambdaCallback(
                on_train_batch_end=lambda batch, logs: recorder.step(logs["loss"], BATCH)
            )
            for rows in halves:
                if rows[0]:
                    model.compile(keras.optimizers.SGD(0.1), model.loss)
                model.fit(x[rows], y[rows], BATCH, shuffle=False, verbose=0, callbacks=[step])
        return
    frozen = ["body"] if name in ("thawed layer", "frozen by its layer") else []
    model.fit(x, y, BATCH, shuffle=False, verbose=0, callbacks=[RecorderCallback(out, frozen=frozen)])


if __name__ == "__main__":
    for name in sys.argv[2:]:
        fit(Path(sys.argv[1]) / name, name)
