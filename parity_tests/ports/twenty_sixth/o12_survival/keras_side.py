"""DeepSurv: Cox partial likelihood (Breslow, no ties), y = (time, event)."""

import keras
from keras import layers, ops

LR, MOMENTUM, DECAY, EVERY, CLIP = 0.05, 0.9, 0.8, 10, 0.5


class StepDecayNAG(keras.optimizers.Optimizer):
    """Nesterov momentum whose rate falls by DECAY every EVERY updates."""

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self._velocity = [self.add_variable_from_reference(v, name="velocity") for v in variables]

    def update_step(self, gradient, variable, learning_rate):
        dt = variable.dtype
        velocity = self._velocity[self._get_variable_index(variable)]
        drops = ops.cast(self.iterations // EVERY, dt)
        lr = ops.cast(learning_rate, dt) * ops.power(ops.convert_to_tensor(DECAY, dtype=dt), drops)
        g = ops.cast(gradient, dt)
        self.assign(velocity, MOMENTUM * velocity - lr * g)
        self.assign_add(variable, MOMENTUM * velocity - lr * g)


def make():
    return StepDecayNAG(learning_rate=LR, global_clipnorm=CLIP)


def cox_loss(y_true, y_pred):
    time, event = y_true[:, 0], y_true[:, 1]
    risk = y_pred[:, 0]
    at_risk = time[None, :] >= time[:, None]
    scores = ops.where(at_risk, risk[None, :], -1e9)
    log_denominator = ops.logsumexp(scores, axis=1)
    return -ops.sum(event * (risk - log_denominator)) / ops.sum(event)


def build():
    x = keras.Input((11,), name="x")
    h = layers.Dense(24, name="fc1")(x)
    h = layers.LayerNormalization(name="ln1")(h)
    h = layers.Activation("softplus")(h)
    h = layers.Dense(16, name="fc2")(h)
    h = layers.LayerNormalization(name="ln2")(h)
    h = layers.Activation("softplus")(h)
    deep = layers.Dense(1, use_bias=False, name="deep")(h)
    linear = layers.Dense(1, use_bias=False, name="linear")(x)
    return keras.Model(x, layers.Add()([deep, linear]), name="deepsurv")
