"""Topics of short messages: convolutions of several widths over words, and a highway."""

import keras
from keras import layers, ops

WORDS, LENGTH, DIM, TOPICS = 150, 18, 20, 6


@keras.saving.register_keras_serializable("topics")
class Highway(layers.Layer):
    def build(self, shape):
        width = shape[-1]
        self.transform = layers.Dense(width, activation="relu", name="transform")
        self.carry = layers.Dense(
            width, activation="sigmoid", bias_initializer=keras.initializers.Constant(1.0), name="carry"
        )
        self.transform.build(shape)
        self.carry.build(shape)

    def call(self, x):
        keep = self.carry(x)
        return keep * x + (1 - keep) * self.transform(x)


@keras.saving.register_keras_serializable("topics")
class Topics(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.words = layers.Dense(DIM, use_bias=False, name="words")
        self.words_dropout = layers.SpatialDropout1D(0.2)
        self.convolutions = [
            layers.Conv1D(12, size, activation="relu", name=f"width_{size}") for size in (2, 3, 4)
        ]
        self.pool = layers.GlobalMaxPooling1D()
        self.highways = [Highway(name=f"highway_{i}") for i in range(2)]
        self.dropout = layers.Dropout(0.3)
        self.topic = layers.Dense(TOPICS, name="topic")

    def call(self, tokens, training=None):
        x = self.words(ops.one_hot(tokens, WORDS, dtype=self.compute_dtype))
        x = self.words_dropout(x, training=training)
        x = ops.concatenate([self.pool(convolution(x)) for convolution in self.convolutions], axis=-1)
        for highway in self.highways:
            x = highway(x)
        return self.topic(self.dropout(x, training=training))


def build():
    return Topics(name="topics")


def optimizer():
    return keras.optimizers.SGD(0.0625, momentum=0.9, weight_decay=0.03125)
