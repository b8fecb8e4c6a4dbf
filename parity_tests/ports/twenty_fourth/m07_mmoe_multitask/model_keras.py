"""Feed ranking: cross network and multi-gate mixture of experts, two tasks.

Tasks: "click" (logit) and "dwell" (log seconds). The dwell tower also sees the
predicted click probability, without sending gradients into the click tower.
"""

import keras
from keras import layers, ops

FEATURES, EXPERTS, UNITS = 20, 4, 16
GATE_TEMPERATURE = 1.5


class Cross(layers.Layer):
    """One full-matrix cross layer: x0 * (W x + b) + x."""

    def build(self, input_shape):
        self.dense = layers.Dense(input_shape[-1], name="dense")
        self.dense.build(input_shape)

    def call(self, x0, x):
        return x0 * self.dense(x) + x


class Gate(layers.Layer):
    """Softmax over the experts with a temperature, then the weighted sum."""

    def build(self, features_shape, experts_shape):
        self.logits = layers.Dense(experts_shape[1], use_bias=False, name="logits")
        self.logits.build(features_shape)

    def call(self, features, experts):
        weights = ops.softmax(self.logits(features) / GATE_TEMPERATURE, axis=-1)
        return ops.einsum("be,beu->bu", weights, experts)


class StackExperts(layers.Layer):
    def call(self, outputs):
        return ops.stack(outputs, axis=1)


class Detached(layers.Layer):
    """Probability of a logit, cut from the gradient."""

    def call(self, logit):
        return ops.stop_gradient(ops.sigmoid(logit))


def expert(x, index):
    h = layers.Dense(UNITS, activation="relu", name=f"expert{index}_in")(x)
    h = layers.Dropout(0.2, name=f"expert{index}_drop")(h)
    return layers.Dense(UNITS, activation="relu", name=f"expert{index}_out")(h)


def tower(x, name):
    x = layers.LayerNormalization(epsilon=1e-3, name=f"{name}_norm")(x)
    x = layers.Dense(8, activation="selu", name=f"{name}_hidden")(x)
    return x


def build():
    inputs = keras.Input((FEATURES,), name="x")
    x = Cross(name="cross0")(inputs, inputs)
    x = Cross(name="cross1")(inputs, x)

    experts = StackExperts(name="experts")([expert(x, i) for i in range(EXPERTS)])
    click_mix = Gate(name="click_gate")(x, experts)
    dwell_mix = Gate(name="dwell_gate")(x, experts)

    click = layers.Dense(1, name="click")(tower(click_mix, "click_tower"))

    h = tower(dwell_mix, "dwell_tower")
    h = layers.Concatenate(name="dwell_in")([h, Detached(name="p_click")(click)])
    dwell = layers.Dense(1, name="dwell")(h)
    return keras.Model(inputs, {"click": click, "dwell": dwell}, name="mmoe")
