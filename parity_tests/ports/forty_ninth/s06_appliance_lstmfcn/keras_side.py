"""Which appliance is switched on, and how much does it draw? LSTM-FCN on current, voltage and phase."""

import keras
from keras.layers import (
    LSTM,
    Activation,
    BatchNormalization,
    Conv1D,
    Dense,
    GlobalAveragePooling1D,
    Multiply,
    Permute,
    Reshape,
    concatenate,
)

APPLIANCES = 7


def squeeze_excite(x, ratio=4):
    filters = x.shape[-1]
    se = GlobalAveragePooling1D()(x)
    se = Reshape((1, filters))(se)
    se = Dense(filters // ratio, activation="relu", use_bias=False)(se)
    se = Dense(filters, activation="sigmoid", use_bias=False)(se)
    return Multiply()([x, se])


def fcn_block(x, filters, kernel):
    x = Conv1D(filters, kernel, padding="same", kernel_initializer="he_uniform")(x)
    x = BatchNormalization(momentum=0.9, epsilon=1e-3)(x)
    return Activation("relu")(x)


def build():
    signal = keras.Input((64, 3), name="signal")

    a = Permute((2, 1))(signal)
    a = LSTM(12, recurrent_activation="sigmoid")(a)

    b = fcn_block(signal, 16, 8)
    b = squeeze_excite(b)
    b = fcn_block(b, 24, 5)
    b = squeeze_excite(b)
    b = fcn_block(b, 16, 3)
    b = GlobalAveragePooling1D()(b)

    x = concatenate([a, b])
    appliance = Dense(APPLIANCES, name="appliance")(x)
    power = Dense(1, activation="softplus", name="power")(x)
    return keras.Model(signal, {"appliance": appliance, "power": power})


def optimizer():
    rate = keras.optimizers.schedules.PiecewiseConstantDecay([11, 29], [2e-3, 1e-3, 4e-4])
    return keras.optimizers.RMSprop(rate, rho=0.9, momentum=0.5, epsilon=1e-3)
