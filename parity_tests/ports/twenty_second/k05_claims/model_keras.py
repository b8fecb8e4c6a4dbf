import math

import keras
from keras import layers, ops


class WarmupCosine(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, peak, warmup, total):
        self.peak, self.warmup, self.total = peak, warmup, total

    def __call__(self, step):
        step = ops.cast(step, "float32")
        rise = (step + 1.0) / self.warmup
        frac = ops.clip((step - self.warmup) / (self.total - self.warmup), 0.0, 1.0)
        fall = 0.5 * (1.0 + ops.cos(math.pi * frac))
        return self.peak * ops.where(step < self.warmup, rise, fall)

    def get_config(self):
        return {"peak": self.peak, "warmup": self.warmup, "total": self.total}


def optimizer():
    opt = keras.optimizers.SGD(WarmupCosine(0.1, 4, 24), weight_decay=0.02, global_clipnorm=0.5)
    opt.exclude_from_weight_decay(var_names=["bias", "gamma", "beta", "region", "vehicle"])
    return opt


def poisson_nll(y_true, y_pred):
    return ops.mean(ops.exp(y_pred) - y_true * y_pred, axis=-1)


def build():
    rating = keras.Input((6,), name="rating")
    codes = keras.Input((2,), name="codes", dtype="int32")
    exposure = keras.Input((1,), name="exposure")

    region = layers.Dense(4, use_bias=False, name="region")(ops.one_hot(codes[:, 0], 12))
    vehicle = layers.Dense(3, use_bias=False, name="vehicle")(ops.one_hot(codes[:, 1], 8))
    x = layers.Concatenate()([rating, region, vehicle])
    x = layers.Dense(24, name="d1")(x)
    x = layers.LayerNormalization(epsilon=1e-5, name="ln")(x)
    x = layers.Activation("relu")(x)
    x = layers.Dense(12, activation="tanh", name="d2")(x)
    log_rate = layers.Dense(1, name="rate")(x)
    return keras.Model([rating, codes, exposure], log_rate + ops.log(exposure))
