"""x-vectors: a TDNN with statistics pooling that tells speakers apart from MFCCs."""

import keras
from keras import layers, ops, regularizers

FRAMES, COEFFICIENTS, SPEAKERS = 50, 20, 8


class StatisticsPooling(layers.Layer):
    def call(self, x):
        mean = ops.mean(x, axis=1)
        std = ops.sqrt(ops.mean(ops.square(x - ops.expand_dims(mean, 1)), axis=1) + 1e-5)
        return ops.concatenate([mean, std], axis=-1)


def tdnn(filters, context, dilation):
    return [
        layers.Conv1D(filters, context, dilation_rate=dilation, activation="relu"),
        layers.BatchNormalization(momentum=0.95),
    ]


def build():
    decay = regularizers.L2(1 / 2048)
    model = keras.Sequential(
        [
            keras.Input((FRAMES, COEFFICIENTS)),
            layers.LayerNormalization(axis=1, center=False, scale=False, epsilon=1e-6),
            *tdnn(24, 5, 1),
            *tdnn(24, 3, 2),
            *tdnn(24, 3, 3),
            layers.SpatialDropout1D(0.1),
            *tdnn(40, 1, 1),
            StatisticsPooling(),
            layers.Dense(32, kernel_regularizer=decay, name="xvector"),
            layers.BatchNormalization(momentum=0.95),
            layers.ReLU(),
            layers.Dense(32, kernel_regularizer=decay),
            layers.BatchNormalization(momentum=0.95),
            layers.ReLU(),
            layers.Dense(SPEAKERS, kernel_regularizer=decay, name="speaker"),
        ]
    )
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([8, 16], [0.05, 0.02, 0.01])
    model.compile(
        keras.optimizers.SGD(schedule, momentum=0.9, nesterov=True),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model
