"""State of a local grid from its substations: a deep graph network with initial residuals (GCNII)."""

import math

import keras
from keras import layers, ops

NODES = 12
FEATURES = 6
WIDTH = 16
DEPTH = 5
ALPHA = 0.15
LAMBDA = 0.6
STATES = 4


@keras.saving.register_keras_serializable("grid")
class NormalisedAdjacency(layers.Layer):
    """Loops added for the nodes that exist, then D^-1/2 (A + I) D^-1/2."""

    def call(self, lines, exists):
        full = lines + ops.expand_dims(exists, 2) * ops.eye(NODES, dtype=lines.dtype)
        degree = ops.sum(full, axis=-1)
        scale = ops.where(degree > 0, ops.rsqrt(ops.where(degree > 0, degree, 1.0)), 0.0)
        return ops.expand_dims(scale, 2) * full * ops.expand_dims(scale, 1)


@keras.saving.register_keras_serializable("grid")
class GCNII(layers.Layer):
    def __init__(self, order, **kwargs):
        super().__init__(**kwargs)
        self.strength = math.log(LAMBDA / order + 1.0)
        self.linear = layers.Dense(WIDTH, use_bias=False, name="linear")

    def call(self, h, h0, adjacency):
        mixed = (1.0 - ALPHA) * ops.matmul(adjacency, h) + ALPHA * h0
        return ops.relu((1.0 - self.strength) * mixed + self.strength * self.linear(mixed))


@keras.saving.register_keras_serializable("grid")
class Readout(layers.Layer):
    """Gated sum over existing nodes beside their maximum."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.score = layers.Dense(1, name="score")

    def call(self, h, exists):
        mask = ops.expand_dims(exists, 2)
        logits = ops.where(mask > 0, self.score(h), -1e9)
        weight = ops.softmax(logits, axis=1)
        pooled = ops.sum(weight * h, axis=1)
        top = ops.max(ops.where(mask > 0, h, -1e9), axis=1)
        return ops.concatenate([pooled, top], axis=-1)


def build():
    readings = keras.Input((NODES, FEATURES), name="readings")
    lines = keras.Input((NODES, NODES), name="lines")
    exists = keras.Input((NODES,), name="exists")

    adjacency = NormalisedAdjacency(name="adjacency")(lines, exists)
    h0 = layers.Dense(WIDTH, activation="elu", name="lift")(readings)
    h = h0
    for order in range(1, DEPTH + 1):
        h = GCNII(order, name=f"gcn{order}")(h, h0, adjacency)
    h = layers.LayerNormalization(epsilon=1e-5, name="node_norm")(h)
    x = Readout(name="readout")(h, exists)
    x = layers.Dense(20, activation="tanh", name="hidden")(x)
    x = layers.Dense(STATES, name="state")(x)
    return keras.Model([readings, lines, exists], x, name="substations")


@keras.saving.register_keras_serializable("grid")
class WarmInverseRoot(keras.optimizers.schedules.LearningRateSchedule):
    """Rises over the first steps, then falls as one over the root of the step."""

    def __init__(self, peak=4e-3, warm=8):
        self.peak = peak
        self.warm = warm

    def __call__(self, step):
        step = ops.cast(step, keras.config.floatx()) + 1.0
        return self.peak * ops.minimum(step / self.warm, ops.sqrt(self.warm / step))

    def get_config(self):
        return {"peak": self.peak, "warm": self.warm}


def optimizer():
    opt = keras.optimizers.AdamW(
        learning_rate=WarmInverseRoot(), beta_1=0.9, beta_2=0.98, epsilon=1e-6, weight_decay=0.05
    )
    opt.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    return opt
