"""Keras models as a user's code may hold them: odd, broken, or hostile."""

import os
import sys
import tempfile

import keras
import numpy as np
import tensorflow as tf
from keras import layers


class Scale(layers.Layer):
    """A custom layer."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

    def call(self, x):
        return x * self.scale


def branches():
    """Two inputs, two outputs, a shared layer, a layer that nothing uses."""
    tokens = keras.Input((5,), dtype="int32", name="tokens")
    numbers = keras.Input((6,), name="numbers")
    shared = layers.Dense(6, name="shared", activation="tanh")
    x = layers.GlobalAveragePooling1D(name="mean")(layers.Embedding(11, 6, name="embed")(tokens))
    x = Scale(name="scale")(shared(x))
    x = layers.Add(name="add")([shared(x), numbers])
    return keras.Model(
        {"tokens": tokens, "numbers": numbers}, {"logits": layers.Dense(11, name="head")(x), "features": x}
    )


def listed():
    """The same kind, with lists in the place of dicts."""
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    return keras.Model([a, b], [layers.Subtract(name="minus")([a, b]), layers.Dense(2, name="fc")(a)])


class Lazy(keras.Model):
    """Built by its first call; one layer is never called."""

    def __init__(self):
        super().__init__()
        self.conv = layers.Conv2D(4, 3, activation="relu")
        self.norm = layers.BatchNormalization()
        self.spare = layers.Dense(2)
        self.blocks = [layers.Dense(6), keras.Sequential([layers.Dense(6), layers.ReLU()])]
        self.fc = layers.Dense(5)

    @tf.function
    def call(self, x, training=False):
        x = layers.Flatten()(self.norm(self.conv(x), training=training))
        for block in self.blocks:
            x = block(x)
        return self.fc(x)


class Two(keras.Model):
    """Two inputs by name, outputs in a tuple."""

    def __init__(self):
        super().__init__()
        self.left, self.right = layers.Dense(3), layers.Dense(3)

    def call(self, query, memory=None, training=None):
        return self.left(query), (self.right(memory), None)


def random():
    """Draws in three ways: a layer, a layer of one's own, and an augmentation."""
    return keras.Sequential(
        [
            keras.Input((4, 4, 1)),
            layers.RandomFlip("horizontal", name="flip"),
            layers.Dropout(0.5, name="drop"),
            Noisy(name="noisy"),
            layers.Conv2D(2, 3, name="conv"),
            layers.Flatten(name="flat"),
        ]
    )


class Noisy(layers.Layer):
    def call(self, x, training=False):
        if training:
            x = x + tf.random.normal(tf.shape(x), dtype=x.dtype) + np.random.normal(size=x.shape)
        return x


class Unowned(keras.Model):
    """Trains a variable that Keras does not know of."""

    def __init__(self):
        super().__init__()
        self.first = layers.Dense(4)
        self.shift = tf.Variable(tf.ones(4, "float64"), name="shift")

    def call(self, x):
        return self.first(x) + self.shift


def recurrent():
    """Masks, cells and wrappers."""
    tokens = keras.Input((5,), dtype="int32")
    x = layers.Embedding(9, 4, mask_zero=True, name="embed")(tokens)
    x = layers.Bidirectional(layers.LSTM(3, return_sequences=True), name="both")(x)
    x = layers.TimeDistributed(layers.Dense(4), name="each")(x)
    x = layers.MultiHeadAttention(2, 3, dropout=0.1, name="attend")(x, x)
    return keras.Model(tokens, layers.GRU(3, name="last")(x))


def fixed():
    """Parts with types of their own, penalties, nested models."""
    inner = keras.Sequential(
        [keras.Input((4,)), layers.Dense(4, kernel_regularizer="l2", name="deep")], name="inner"
    )
    image = keras.Input((4,), dtype="float32", name="image")
    x = layers.Dense(4, dtype="mixed_float16", name="mixed")(inner(image))
    return keras.Model(image, layers.Activation("softmax", dtype="float32", name="probabilities")(x))


def sets_types():
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")
    return keras.Sequential([keras.Input((4,)), layers.Dense(3, name="fc")])


TABLE = np.float32([0.5, 0.25, 2.0])


class Casting(keras.Model):
    """Works in float32 inside, whatever it is given."""

    def __init__(self):
        super().__init__()
        self.fc = layers.Dense(3)

    def call(self, x):
        scaled = (
            self.fc(keras.ops.cast(x, "float32"))
            * keras.ops.expand_dims(TABLE, 0)
            * tf.gather(TABLE, [2, 1, 0])
        )
        return scaled + keras.ops.cast(keras.ops.sum(x), "float32") * keras.ops.log(2.0)


def causal():
    return keras.Sequential([keras.Input((5, 2)), layers.Conv1D(3, 2, padding="causal", name="conv")])


class Mixed(Casting):
    """Casts to float32 by what nobody sees."""

    def call(self, x):
        return self.fc(x) + tf.raw_ops.Cast(x=keras.ops.sum(x), DstT=1)


def not_a_number():
    return keras.Sequential(
        [keras.Input((4,)), layers.Dense(3, name="fc"), layers.Lambda(keras.ops.log, name="log")]
    )


def needs(width, *, depth):
    return keras.Sequential([keras.Input((width,)), *[layers.Dense(width) for _ in range(depth)]])


def fails():
    return layers.Dense(-4)


class FailsLater(keras.Model):
    def call(self, x):
        raise RuntimeError("two\nlines of trouble")


def no_model():
    return tf.Variable(3.0)


def leaves():
    sys.exit("enough")


def asks():
    return layers.Dense(int(sys.stdin.readline()))


def chatters():
    print('{"value": null}')
    os.write(1, b'{"error": "not ours"}\n')
    return keras.Sequential([keras.Input((4,)), layers.Dense(2)])


ready = keras.Sequential([keras.Input((4,)), layers.Dense(2, name="ready")])
number = 7


def nested():
    """A model within a model, called twice; one of its layers is frozen; the head counts a loss of its own."""
    inner = keras.Sequential(
        [keras.Input((4,)), layers.Dense(4, name="deep"), layers.Dense(4, name="still", trainable=False)],
        name="inner",
    )
    x = keras.Input((4,))
    return keras.Model(x, layers.Dense(2, name="head", activity_regularizer="l2")(inner(inner(x))))


def words():
    return keras.Sequential([layers.TextVectorization(vocabulary=["a", "b"]), layers.Embedding(4, 2)])


def graphs():
    tf.compat.v1.disable_eager_execution()
    return keras.Sequential([keras.Input((4,)), layers.Dense(2)])


def _exported(folder):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    model.export(folder)


def saved():
    with tempfile.TemporaryDirectory() as folder:
        _exported(folder)
        return tf.saved_model.load(folder)


def wrapped():
    with tempfile.TemporaryDirectory() as folder:
        _exported(folder)
        return keras.layers.TFSMLayer(folder, call_endpoint="serve")


class Variables(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable(tf.zeros((2, 2)))
