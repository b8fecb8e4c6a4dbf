"""Power outages of a feeder as a marked point process: mixture of log-normals for the time to the next
outage, a softmax for its cause, the open interval at the end of the record counted as censored."""

import math

import keras
import tensorflow as tf
from keras import layers, ops

STEPS = 16
CAUSES = 5
MIX = 6
LOG_MEAN, LOG_STD = 2.9, 1.7


def build():
    gaps = keras.Input((STEPS,), name="gaps")
    cause = keras.Input((STEPS,), dtype="int32", name="cause")
    t = layers.Lambda(lambda g: ops.expand_dims((ops.log(g) - LOG_MEAN) / LOG_STD, -1), name="scale")(gaps)
    marks = layers.Lambda(lambda c: ops.one_hot(c, CAUSES + 1), name="one_hot")(cause)
    marks = layers.Dense(8, use_bias=False, name="mark")(marks)
    h = layers.Concatenate()([t, marks])
    h = layers.LSTM(24, return_sequences=True, name="history")(h)
    h = layers.LayerNormalization(name="norm")(h)
    mixture = layers.Dense(3 * MIX, name="mixture")(h)
    following = layers.Dense(CAUSES, name="next_cause")(h)
    return keras.Model([gaps, cause], layers.Concatenate(name="outputs")([mixture, following]))


def loss(targets, outputs):
    gap, status, cause = targets[..., 0], targets[..., 1], targets[..., 2]
    happened = ops.cast(ops.equal(status, 1), outputs.dtype)
    open_end = ops.cast(ops.equal(status, 0), outputs.dtype)

    logits, centre, spread = ops.split(outputs[..., : 3 * MIX], 3, axis=-1)
    log_weight = ops.log_softmax(logits, axis=-1)
    sigma = ops.softplus(spread) + 0.1
    x = (ops.log(gap) - LOG_MEAN) / LOG_STD
    z = (ops.expand_dims(x, -1) - centre) / sigma

    log_density = ops.logsumexp(
        log_weight - 0.5 * ops.square(z) - ops.log(sigma) - 0.5 * math.log(2 * math.pi), axis=-1
    )
    log_density = log_density - ops.log(gap) - math.log(LOG_STD)
    survival = ops.sum(ops.exp(log_weight) * 0.5 * tf.math.erfc(z / math.sqrt(2.0)), axis=-1)

    mark = ops.sum(
        ops.one_hot(ops.cast(cause, "int32") - 1, CAUSES) * ops.log_softmax(outputs[..., 3 * MIX :], axis=-1),
        axis=-1,
    )
    likelihood = happened * (log_density + mark) + open_end * ops.log(survival)
    return -ops.sum(likelihood, axis=-1) / ops.sum(happened, axis=-1)


class WarmThenRoot(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, peak, warm):
        self.peak, self.warm = peak, warm

    def __call__(self, step):
        n = ops.cast(step, "float32") + 1.0
        return self.peak * ops.minimum(n / self.warm, ops.sqrt(self.warm / n))

    def get_config(self):
        return {"peak": self.peak, "warm": self.warm}


class AdaBelief(keras.optimizers.Optimizer):
    def __init__(self, learning_rate=1e-3, beta_1=0.9, beta_2=0.99, epsilon=1e-8, **kwargs):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.means = [self.add_variable_from_reference(v, name="mean") for v in variables]
        self.beliefs = [self.add_variable_from_reference(v, name="belief") for v in variables]

    def update_step(self, gradient, variable, learning_rate):
        lr = ops.cast(learning_rate, variable.dtype)
        g = ops.cast(gradient, variable.dtype)
        n = ops.cast(self.iterations + 1, variable.dtype)
        k = self._get_variable_index(variable)
        m, s = self.means[k], self.beliefs[k]
        self.assign_add(m, (1 - self.beta_1) * (g - m))
        self.assign_add(s, (1 - self.beta_2) * (ops.square(g - m) - s) + self.epsilon)
        first = m / (1 - ops.power(ops.cast(self.beta_1, variable.dtype), n))
        second = s / (1 - ops.power(ops.cast(self.beta_2, variable.dtype), n))
        self.assign_sub(variable, lr * first / (ops.sqrt(second) + self.epsilon))


def optimizer():
    opt = AdaBelief(WarmThenRoot(4e-3, 6.0), weight_decay=0.02, global_clipnorm=1.0)
    opt.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    return opt
