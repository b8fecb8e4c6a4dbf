"""Churn score: numeric columns, two categorical ones, a small residual MLP with L2 everywhere it matters."""

import keras
import numpy as np
from keras import layers, regularizers

MEAN = 3.5 * np.arange(10) - 2
VAR = (0.5 + 0.75 * np.arange(10)) ** 2
L2 = 5e-3


def _dense(units, **kw):
    return layers.Dense(units, kernel_regularizer=regularizers.L2(L2), **kw)


def build():
    numeric = keras.Input((10,), name="numeric")
    plan = keras.Input((), dtype="int32", name="plan")
    region = keras.Input((), dtype="int32", name="region")

    x = layers.Normalization(mean=MEAN, variance=VAR, name="scale")(numeric)
    p = layers.Embedding(5, 3, embeddings_regularizer=regularizers.L2(L2), name="plan_vec")(plan)
    r = layers.Embedding(9, 4, embeddings_regularizer=regularizers.L2(L2), name="region_vec")(region)
    x = layers.Concatenate()([x, p, r])
    x = _dense(24, name="project")(x)
    for i in range(2):
        h = layers.LayerNormalization(epsilon=1e-5, name=f"norm{i}")(x)
        h = _dense(24, activation="silu", name=f"inner{i}")(h)
        h = layers.Dropout(0.1)(h)
        x = layers.Add()([x, _dense(24, name=f"outer{i}")(h)])
    return keras.Model([numeric, plan, region], _dense(1, name="churn")(x))


def optimizer():
    return keras.optimizers.SGD(learning_rate=0.03, momentum=0.9, nesterov=True)
