"""NetVLAD place recognition: a street view, one of the same place, two of other places."""

import keras
import tensorflow as tf
from keras import layers, ops

SIDE, NEGATIVES, CLUSTERS, DIM, OUT = 24, 2, 6, 32, 48
MARGIN = 0.3


class NetVLAD(layers.Layer):
    """Residuals of local descriptors to soft-assigned clusters, normalised within and over them."""

    def __init__(self, clusters, **kw):
        super().__init__(**kw)
        self.clusters = clusters

    def build(self, shape):
        self.assign = layers.Dense(self.clusters, name="assign")
        self.assign.build(shape)
        self.centres = self.add_weight(
            shape=(shape[-1], self.clusters), initializer="glorot_uniform", name="centres"
        )

    def call(self, x):
        x = ops.reshape(x, (-1, x.shape[1] * x.shape[2], x.shape[3]))
        x = ops.normalize(x, axis=-1)
        a = ops.softmax(self.assign(x), axis=-1)
        v = ops.einsum("bnk,bnd->bdk", a, x) - ops.sum(a, axis=1, keepdims=True) * self.centres
        v = ops.normalize(v, axis=1)
        return ops.normalize(ops.reshape(v, (-1, x.shape[2] * self.clusters)), axis=-1)


class ContextGate(layers.Layer):
    def build(self, shape):
        self.gate = layers.Dense(shape[-1], name="gate")
        self.gate.build(shape)

    def call(self, x):
        return x * ops.sigmoid(self.gate(x))


def separable(x, filters, name):
    y = layers.SeparableConv2D(
        filters, 3, padding="same", depth_multiplier=2, use_bias=False, name=f"{name}_sep"
    )(x)
    y = layers.GroupNormalization(groups=4, epsilon=1e-5, name=f"{name}_norm")(y)
    return layers.LeakyReLU(negative_slope=0.125)(y)


def encoder():
    image = keras.Input((SIDE, SIDE, 3))
    x = layers.Conv2D(16, 5, padding="same", name="conv1")(image)
    x = layers.MaxPooling2D(3, strides=2, padding="valid")(layers.LeakyReLU(negative_slope=0.125)(x))
    x = separable(x, 24, "mid")
    x = layers.AveragePooling2D(3, strides=2, padding="same")(x)
    x = separable(x, DIM, "deep")
    x = layers.Conv2D(DIM, 1, name="local")(x)
    x = NetVLAD(CLUSTERS, name="vlad")(x)
    x = layers.Dense(OUT, name="whiten")(x)
    x = ContextGate(name="context")(x)
    return keras.Model(image, layers.UnitNormalization(axis=-1)(x), name="encoder")


class PlaceModel(keras.Model):
    def __init__(self, **kw):
        super().__init__(**kw)
        self.loss_tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.loss_tracker]

    def objective(self, x, metres, training):
        out = self(x, training=training)
        q, p, n = out["query"], out["positive"], out["negatives"]
        near = ops.sum(ops.square(q - p), axis=-1)
        far = ops.sum(ops.square(q[:, None] - n), axis=-1)
        violation = ops.relu(MARGIN + near[:, None] - far)
        hard = ops.cast(violation > 0, violation.dtype)
        per_query = ops.sum(violation, axis=1) / ops.maximum(ops.sum(hard, axis=1), 1.0)
        trust = ops.exp(-ops.cast(metres, near.dtype) / 25.0)
        return ops.sum(trust * per_query) / ops.sum(trust) + 0.01 * ops.mean(near)

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            loss = self.objective(x, y, training=True)
        self.optimizer.apply_gradients(
            zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        )
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}


def build():
    query = keras.Input((SIDE, SIDE, 3), name="query")
    positive = keras.Input((SIDE, SIDE, 3), name="positive")
    negatives = keras.Input((NEGATIVES, SIDE, SIDE, 3), name="negatives")
    describe = encoder()
    others = describe(ops.reshape(negatives, (-1, SIDE, SIDE, 3)))
    outputs = {
        "query": describe(query),
        "positive": describe(positive),
        "negatives": ops.reshape(others, (-1, NEGATIVES, OUT)),
    }
    return PlaceModel(inputs=[query, positive, negatives], outputs=outputs)
