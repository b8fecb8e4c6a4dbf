# Headline topics from words and their characters.
import keras
from keras import layers, ops

MAX_WORDS, MAX_CHARS = 14, 9
VOCAB, ALPHABET = 300, 30
TOPICS = 5


@keras.saving.register_keras_serializable("headlines")
class Highway(layers.Layer):
    def __init__(self, activation="relu", carry_bias=-2.0, **kwargs):
        super().__init__(**kwargs)
        self.activation = keras.activations.get(activation)
        self.carry_bias = carry_bias

    def build(self, input_shape):
        n = input_shape[-1]
        self.transform = layers.Dense(n, activation=self.activation, name="h")
        self.gate = layers.Dense(
            n, activation="sigmoid", name="t", bias_initializer=keras.initializers.Constant(self.carry_bias)
        )
        self.transform.build(input_shape)
        self.gate.build(input_shape)

    def call(self, x):
        t = self.gate(x)
        return t * self.transform(x) + (1.0 - t) * x


@keras.saving.register_keras_serializable("headlines")
class MaskChars(layers.Layer):
    def call(self, embedded, ids):
        return embedded * ops.cast(ops.expand_dims(ids, -1) > 0, embedded.dtype)


def build():
    words = keras.Input((MAX_WORDS,), dtype="int32", name="words")
    chars = keras.Input((MAX_WORDS, MAX_CHARS), dtype="int32", name="chars")

    w = layers.Embedding(VOCAB, 20, name="word_embedding")(words)
    c = layers.Embedding(ALPHABET, 8, name="char_embedding")(chars)
    c = MaskChars()(c, chars)
    c = layers.TimeDistributed(layers.Conv1D(12, 3, activation="tanh", name="char_conv"), name="per_word")(c)
    c = layers.TimeDistributed(layers.GlobalMaxPooling1D())(c)

    x = layers.concatenate([w, c])
    for i in range(2):
        x = Highway(name=f"highway_{i}")(x)

    pooled = []
    for width, filters in ((2, 12), (3, 12), (4, 10)):
        f = layers.Conv1D(filters, width, activation="relu", name=f"gram{width}")(x)
        pooled.append(layers.GlobalMaxPooling1D()(f))
    pooled.append(layers.GlobalAveragePooling1D()(x))
    x = layers.concatenate(pooled)
    x = layers.LayerNormalization(epsilon=1e-5, name="norm")(x)
    x = layers.Dropout(0.3)(x)
    x = layers.Dense(24, activation="silu", name="hidden")(x)
    return keras.Model({"words": words, "chars": chars}, layers.Dense(TOPICS, name="topic")(x))


def loss(y, logits):
    y = ops.one_hot(ops.cast(ops.reshape(y, (-1,)), "int32"), TOPICS)
    return keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)(y, logits)


def optimizer():
    lr = keras.optimizers.schedules.ExponentialDecay(0.05, decay_steps=6, decay_rate=0.8, staircase=True)
    return keras.optimizers.SGD(lr, weight_decay=2e-3)
