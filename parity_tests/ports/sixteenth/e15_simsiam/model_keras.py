"""SimSiam (Chen and He 2021) on windows of wearable accelerometers: two views of a window shall be predicted from each other."""

import keras
import tensorflow as tf
from keras import layers, ops

STEPS, AXES, WIDTH = 32, 3, 20


def norm(**options):
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5, **options)


def encoder():
    x = inputs = keras.Input((STEPS, AXES))
    for filters in (12, 16):
        x = layers.Conv1D(filters, 5, strides=2, padding="valid", use_bias=False)(x)
        x = layers.ReLU()(norm()(x))
    x = layers.Concatenate()([layers.GlobalAveragePooling1D()(x), layers.GlobalMaxPooling1D()(x)])
    # projection
    x = layers.ReLU()(norm()(layers.Dense(WIDTH, use_bias=False)(x)))
    x = norm(center=False, scale=False)(layers.Dense(WIDTH, use_bias=False)(x))
    return keras.Model(inputs, x, name="encoder")


def predictor():
    return keras.Sequential(
        [layers.Dense(8, use_bias=False), norm(), layers.ReLU(), layers.Dense(WIDTH)], name="predictor"
    )


def agreement(p, z):
    p, z = ops.normalize(p, axis=-1), ops.normalize(z, axis=-1)
    return ops.mean(ops.sum(p * z, axis=-1))


class SimSiam(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder, self.predictor = encoder(), predictor()
        self.tracker = keras.metrics.Mean(name="loss")

    def call(self, views, training=None):
        z = [self.encoder(views[name], training=training) for name in ("first", "second")]
        p = [self.predictor(each, training=training) for each in z]
        return p[0], p[1], z[0], z[1]

    def train_step(self, data):
        with tf.GradientTape() as tape:
            p1, p2, z1, z2 = self(data, training=True)
            loss = -0.5 * (agreement(p1, ops.stop_gradient(z2)) + agreement(p2, ops.stop_gradient(z1)))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


def build():
    model = SimSiam()
    model.compile(optimizer=keras.optimizers.SGD(0.05, momentum=0.9))
    return model
