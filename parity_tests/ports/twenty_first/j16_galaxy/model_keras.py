import keras
from keras import layers, regularizers


def conv(filters, kind=layers.Conv2D, strides=2):
    return kind(
        filters, 3, strides=strides, padding="same", use_bias=False, kernel_regularizer=regularizers.L2(5e-4)
    )


def build():
    return keras.Sequential(
        [
            keras.Input((12, 12, 2)),
            conv(12),
            layers.BatchNormalization(momentum=0.9),
            layers.LeakyReLU(),
            conv(20),
            layers.BatchNormalization(momentum=0.9),
            layers.LeakyReLU(),
            layers.Flatten(),
            layers.Dense(24, activation="tanh", kernel_regularizer=regularizers.L2(5e-4)),
            layers.Dense(180, kernel_regularizer=regularizers.L2(5e-4)),
            layers.Reshape((3, 3, 20)),
            conv(12, layers.Conv2DTranspose),
            layers.BatchNormalization(momentum=0.9),
            layers.LeakyReLU(),
            conv(8, layers.Conv2DTranspose),
            layers.PReLU(shared_axes=[1, 2]),
            layers.Conv2D(2, 1, kernel_regularizer=regularizers.L2(5e-4)),
        ]
    )


def optimizer():
    rate = keras.optimizers.schedules.CosineDecay(
        0.01, decay_steps=30, alpha=0.1, warmup_target=0.08, warmup_steps=5
    )
    return keras.optimizers.SGD(rate, momentum=0.9, nesterov=True)
