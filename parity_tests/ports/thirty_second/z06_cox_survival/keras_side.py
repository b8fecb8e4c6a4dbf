import keras
from keras import layers, ops


class WeightNormDense(layers.Layer):
    def __init__(self, units, **kw):
        super().__init__(**kw)
        self.units = units

    def build(self, shape):
        self.v = self.add_weight(shape=(shape[-1], self.units), initializer="glorot_normal", name="v")
        self.g = self.add_weight(shape=(self.units,), initializer="ones", name="g")
        self.b = self.add_weight(shape=(self.units,), initializer="zeros", name="b")

    def call(self, x):
        norm = ops.sqrt(ops.sum(ops.square(self.v), axis=0))
        return ops.matmul(x, self.v * (self.g / norm)) + self.b


def build():
    covariates = keras.Input((10,))
    h = WeightNormDense(20)(covariates)
    h = layers.Activation("selu")(h)
    h = WeightNormDense(12)(h)
    h = layers.Activation("selu")(h)
    risk = layers.Dense(1, use_bias=False, name="log_hazard")(h)
    return keras.Model(covariates, risk)


def loss(y_true, y_pred):
    """Negative Cox partial log likelihood (Breslow); y = (time, event)."""
    time, event = y_true[:, 0], ops.cast(y_true[:, 1], y_pred.dtype)
    eta = y_pred[:, 0]
    at_risk = time[None, :] >= time[:, None]
    scores = ops.where(at_risk, eta[None, :], -1e9)
    log_risk = ops.logsumexp(scores, axis=1)
    return ops.sum((log_risk - eta) * event) / ops.maximum(ops.sum(event), 1.0)
