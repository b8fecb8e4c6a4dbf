"""Survival network trained by the Cox partial likelihood (Breslow's for ties; times are whole months)."""

import keras
from keras import layers, ops


def cox_loss(y_true, y_pred):
    """y_true: months of follow-up, and 1 where the event was seen."""
    time, event = y_true[:, 0], y_true[:, 1]
    risk = ops.squeeze(y_pred, -1)
    at_risk = time[None, :] >= time[:, None]
    log_risk_set = ops.logsumexp(ops.where(at_risk, risk[None, :], -1e9), axis=1)
    return -ops.sum(event * (risk - log_risk_set)) / ops.maximum(ops.sum(event), 1.0)


def build():
    return keras.Sequential(
        [
            keras.Input((12,), name="covariates"),
            layers.Dense(32, use_bias=False, kernel_initializer="he_normal"),
            layers.BatchNormalization(),
            layers.ELU(),
            layers.Dense(16, use_bias=False),
            layers.BatchNormalization(),
            layers.Activation("tanh"),
            layers.Dense(1, use_bias=False),
        ]
    )
