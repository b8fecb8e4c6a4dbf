import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops


class PeriodicTokens(layers.Layer):
    """One token per numeric column: [sin, cos] of learned frequencies, then a per-column linear map."""

    def __init__(self, freqs, dim, **kw):
        super().__init__(**kw)
        self.freqs, self.dim = freqs, dim

    def build(self, shape):
        f = shape[-1]
        self.coef = self.add_weight(
            shape=(f, self.freqs), initializer=keras.initializers.RandomNormal(stddev=0.3), name="coef"
        )
        self.mix = self.add_weight(
            shape=(f, 2 * self.freqs, self.dim), initializer="glorot_uniform", name="mix"
        )
        self.shift = self.add_weight(shape=(f, self.dim), initializer="zeros", name="shift")

    def call(self, x):
        a = 2.0 * np.pi * self.coef * ops.expand_dims(x, -1)
        p = ops.concatenate([ops.sin(a), ops.cos(a)], axis=-1)
        return ops.gelu(ops.einsum("bfk,fkd->bfd", p, self.mix) + self.shift)


class MultiTask(keras.Model):
    def __init__(self, dim=6, classes=3):
        super().__init__()
        self.tokens = PeriodicTokens(4, dim, name="tokens")
        self.squeeze = layers.Dense(4, activation="relu", name="squeeze")
        self.excite = layers.Dense(8, activation="sigmoid", name="excite")
        self.flat = layers.Flatten()
        self.fc = layers.Dense(24, name="fc")
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="norm")
        self.price = layers.Dense(1, name="price")
        self.kind = layers.Dense(classes, name="kind")
        self.log_vars = self.add_weight(shape=(2,), initializer="zeros", name="log_vars")

    def call(self, x, training=None):
        t = self.tokens(x)
        w = self.excite(self.squeeze(ops.mean(t, axis=-1)))
        t = t * ops.expand_dims(w, -1)
        a, b = ops.split(self.fc(self.flat(t)), 2, axis=-1)
        h = self.norm(a * ops.silu(b))
        return {"price": self.price(h), "kind": self.kind(h)}

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            out = self(x, training=True)
            reg = ops.mean(ops.square(out["price"][:, 0] - y[:, 0]))
            cls = ops.mean(
                keras.losses.sparse_categorical_crossentropy(
                    ops.cast(y[:, 1], "int32"), out["kind"], from_logits=True
                )
            )
            s = self.log_vars
            loss = 0.5 * ops.exp(-s[0]) * reg + ops.exp(-s[1]) * cls + 0.5 * (s[0] + s[1])
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(grads, self.trainable_variables)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
        return {metric.name: metric.result() for metric in self.metrics}


def build():
    m = MultiTask()
    m(np.zeros((2, 8), "float32"))
    return m


def optimizer():
    opt = keras.optimizers.AdamW(learning_rate=0.01, weight_decay=0.1, epsilon=1e-12)
    opt.exclude_from_weight_decay(var_names=["bias", "gamma", "beta", "log_vars"])
    return opt
