"""Mass-conserving LSTM for daily outflow of a snow-fed catchment."""

import keras
import numpy as np
from keras import ops

STORES = 8
WARMUP = 6

# temperature, short-wave radiation, wind, vapour pressure
AUX_MEAN = np.array([1.5, 140.0, 2.6, 0.62], dtype=np.float32)
AUX_STD = np.array([7.5, 75.0, 1.3, 0.25], dtype=np.float32)


@keras.saving.register_keras_serializable("snowpack")
class MassConservingCell(keras.layers.Layer):
    """Column 0 of the input is the mass that comes in, the rest drives the gates.
    Store 0 loses its outflow to the air."""

    def __init__(self, stores, **kwargs):
        super().__init__(**kwargs)
        self.stores = stores
        self.state_size = stores
        self.output_size = 1
        self.inflow = keras.layers.Dense(stores, activation="softmax", name="inflow")
        self.transfer = keras.layers.Dense(stores * stores, name="transfer")
        self.outflow = keras.layers.Dense(
            stores, activation="sigmoid", bias_initializer=keras.initializers.Constant(-2.0), name="outflow"
        )

    def build(self, input_shape):
        features = input_shape[-1] - 1 + self.stores
        for layer in (self.inflow, self.transfer, self.outflow):
            layer.build((None, features))
        # stay mostly in place at first
        self.transfer.bias.assign(np.reshape(3.0 * np.eye(self.stores), (-1,)))
        super().build(input_shape)

    def call(self, inputs, states):
        c = states[0]
        mass, aux = inputs[:, :1], inputs[:, 1:]
        share = c / (ops.sum(ops.abs(c), axis=-1, keepdims=True) + 1e-2)
        features = ops.concatenate([aux, share], axis=-1)
        into = self.inflow(features)
        move = ops.softmax(ops.reshape(self.transfer(features), (-1, self.stores, self.stores)), axis=-1)
        out = self.outflow(features)
        c = ops.squeeze(ops.matmul(c[:, None, :], move), 1) + into * mass
        leaving = out * c
        runoff = ops.sum(leaving[:, 1:], axis=-1, keepdims=True)
        return runoff, [c - leaving]


def nse_loss(targets, outputs):
    """Squared error in units of the variability of each basin, without the warm-up."""
    scale = ops.std(targets, axis=1, keepdims=True) + 0.1
    error = ops.square((outputs - targets) / scale)
    return ops.mean(error[:, WARMUP:], axis=1)


def build():
    precipitation = keras.Input((None,), name="precipitation")
    weather = keras.Input((None, 4), name="weather")
    mass = ops.expand_dims(precipitation, -1)
    aux = keras.layers.Normalization(mean=AUX_MEAN, variance=AUX_STD**2, name="scale")(weather)
    x = keras.layers.Concatenate()([mass, aux])
    runoff = keras.layers.RNN(MassConservingCell(STORES, name="cell"), return_sequences=True, name="stores")(
        x
    )
    return keras.Model([precipitation, weather], ops.squeeze(runoff, -1), name="snowpack")
