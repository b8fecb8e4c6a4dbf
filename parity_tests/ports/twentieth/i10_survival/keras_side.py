"""DeepSurv: Cox's partial likelihood over the batch. Targets: time, and whether it is an event."""

import keras
from keras import layers, ops


def build():
    return keras.Sequential(
        [
            keras.Input((7,)),
            layers.Dense(16, activation="selu"),
            layers.Dense(8, activation="tanh"),
            layers.Dense(1, use_bias=False),
        ]
    )


def cox(y_true, y_pred):
    time, event = y_true[:, 0], y_true[:, 1]
    risk = y_pred[:, 0]
    later = time[None, :] >= time[:, None]
    scores = ops.where(later, risk[None, :], -1e9)
    partial = risk - ops.logsumexp(scores, axis=1)
    return -ops.sum(partial * event) / ops.maximum(ops.sum(event), 1.0)


def optimizer():
    adam = keras.optimizers.AdamW(learning_rate=5e-3, weight_decay=0.05)
    adam.exclude_from_weight_decay(var_names=["bias"])
    return adam
