"""Gated convolutional language model with an adaptive softmax, on word chunks."""

import keras
import tensorflow as tf
from keras import layers, ops

VOCABULARY = 180
CUTOFFS = (40, 100)
WIDTH = 48
BOTTLENECK = 20
KERNEL = 4
CHUNK = 24


class AdaptiveSoftmax(layers.Layer):
    """Log-probabilities of all words; rare words sit in clusters of their own.

    Words are numbered by falling frequency. The head scores the words below
    the first cut-off and one entry for each cluster of the rest.
    """

    def __init__(self, vocabulary, cutoffs, shrink=2, **kwargs):
        super().__init__(**kwargs)
        self.cutoffs = [*cutoffs, vocabulary]
        self.shrink = shrink
        self.head = layers.Dense(cutoffs[0] + len(cutoffs), use_bias=False, name="head")
        self.down, self.out = [], []

    def build(self, shape):
        width = shape[-1]
        self.head.build(shape)
        for i, (low, high) in enumerate(zip(self.cutoffs[:-1], self.cutoffs[1:])):
            inner = width // self.shrink ** (i + 1)
            down = layers.Dense(inner, use_bias=False, name=f"cluster{i}_down")
            out = layers.Dense(high - low, use_bias=False, name=f"cluster{i}_out")
            down.build(shape)
            out.build((*shape[:-1], inner))
            self.down.append(down)
            self.out.append(out)

    def call(self, hidden):
        head = ops.log_softmax(self.head(hidden), axis=-1)
        shortlist = self.cutoffs[0]
        parts = [head[..., :shortlist]]
        for i, (down, out) in enumerate(zip(self.down, self.out)):
            tail = ops.log_softmax(out(down(hidden)), axis=-1)
            parts.append(head[..., shortlist + i : shortlist + i + 1] + tail)
        return ops.concatenate(parts, axis=-1)


class LanguageModel(keras.Model):
    def train_step(self, data):
        words, following, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            log_probability = self(words, training=True)
            index = ops.expand_dims(ops.cast(following, "int32"), -1)
            loss = -ops.mean(ops.take_along_axis(log_probability, index, axis=-1))
        # dense, so that a word's slices are added up before the norm is taken
        gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, self.trainable_variables)]
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


def gated(x, filters, kernel, dilation=1, name=None):
    x = layers.Conv1D(2 * filters, kernel, padding="causal", dilation_rate=dilation, name=name)(x)
    return keras.activations.glu(x, axis=-1)


def block(x, index, dilation):
    y = gated(x, BOTTLENECK, 1, name=f"block{index}_reduce")
    y = gated(y, BOTTLENECK, KERNEL, dilation, name=f"block{index}_context")
    y = gated(y, WIDTH, 1, name=f"block{index}_expand")
    return layers.Add()([x, y])


def build():
    words = keras.Input((CHUNK,), dtype="int32", name="words")
    x = layers.Embedding(
        VOCABULARY, WIDTH, embeddings_initializer=keras.initializers.RandomNormal(stddev=0.1)
    )(words)
    x = gated(x, WIDTH, KERNEL, name="stem")
    for index, dilation in enumerate((1, 2, 2)):
        x = block(x, index, dilation)
    log_probability = AdaptiveSoftmax(VOCABULARY, CUTOFFS, name="adaptive")(x)
    return LanguageModel(words, log_probability, name="gcnn")


def optimizer():
    return keras.optimizers.SGD(0.5, momentum=0.875, nesterov=True, global_clipnorm=0.125)
