"""Next-event model over parsed syslog templates (GRU + adaptive softmax)."""

import keras
from keras import layers, ops

VOCAB = 160  # log template ids, sorted by frequency; 0 is padding
CUTOFFS = (24, 72)
WIDTH = 32


class AdaptiveSoftmax(layers.Layer):
    """Log-probabilities over a frequency sorted vocabulary (Grave et al., 2017).

    The head scores the frequent templates and one entry per tail; every tail
    is a low-rank projection whose size shrinks by `div_value`.
    """

    def __init__(self, n_classes, cutoffs, div_value=2.0, **kwargs):
        super().__init__(**kwargs)
        self.n_classes = n_classes
        self.cutoffs = list(cutoffs) + [n_classes]
        self.div_value = div_value
        self.shortlist = self.cutoffs[0]
        self.n_tails = len(self.cutoffs) - 1

    def build(self, input_shape):
        width = input_shape[-1]
        self.head = layers.Dense(self.shortlist + self.n_tails, use_bias=False, name="head")
        self.head.build(input_shape)
        self.down, self.up = [], []
        for i in range(self.n_tails):
            rank = int(width // self.div_value ** (i + 1))
            size = self.cutoffs[i + 1] - self.cutoffs[i]
            down = layers.Dense(rank, use_bias=False, name=f"tail{i}_down")
            up = layers.Dense(size, use_bias=False, name=f"tail{i}_up")
            down.build(input_shape)
            up.build(tuple(input_shape[:-1]) + (rank,))
            self.down.append(down)
            self.up.append(up)
        super().build(input_shape)

    def call(self, x):
        head = ops.log_softmax(self.head(x), axis=-1)
        pieces = [head[..., : self.shortlist]]
        for i in range(self.n_tails):
            tail = ops.log_softmax(self.up[i](self.down[i](x)), axis=-1)
            entry = self.shortlist + i
            pieces.append(tail + head[..., entry : entry + 1])
        return ops.concatenate(pieces, axis=-1)

    def compute_output_shape(self, input_shape):
        return tuple(input_shape[:-1]) + (self.n_classes,)


def build():
    events = keras.Input((None,), dtype="int32", name="events")
    x = layers.Embedding(VOCAB, WIDTH, name="template")(events)
    h = layers.GRU(40, return_sequences=True, name="history")(x)
    h = layers.Dense(WIDTH, activation="tanh", name="project")(h)
    h = layers.LayerNormalization(epsilon=1e-5, name="norm")(layers.add([h, x]))
    log_probs = AdaptiveSoftmax(VOCAB, CUTOFFS, name="adaptive")(h)
    return keras.Model(events, log_probs, name="syslog_lm")


def loss(targets, outputs):
    """Mean NLL per line of events, padding left out."""
    targets = ops.cast(targets, "int32")
    keep = ops.cast(ops.not_equal(targets, 0), outputs.dtype)
    picked = ops.take_along_axis(outputs, targets[..., None], axis=-1)[..., 0]
    return -ops.sum(picked * keep, axis=-1) / ops.sum(keep, axis=-1)
