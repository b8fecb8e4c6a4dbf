"""Phonemes -> acoustic frames with location-sensitive attention (Tacotron 2 style),
teacher forced. Phoneme id 0 pads on the right.
"""

import keras
from keras import layers, ops

PHONES, S, T, MEL = 20, 10, 8, 6
ENC, ATT, DEC = 12, 10, 14


class AttentionDecoder(layers.Layer):
    def __init__(self, **kw):
        super().__init__(**kw)
        self.prenet = layers.Dense(10, activation="relu", name="prenet")
        self.cell = layers.GRUCell(DEC, name="cell")
        self.query = layers.Dense(ATT, use_bias=False, name="query")
        self.memory = layers.Dense(ATT, name="memory")
        self.loc_conv = layers.Conv1D(4, 3, padding="same", use_bias=False, name="loc_conv")
        self.loc_dense = layers.Dense(ATT, use_bias=False, name="loc_dense")
        self.score = layers.Dense(1, use_bias=False, name="score")
        self.frame = layers.Dense(MEL, name="frame")

    def build(self, memory_shape, mel_shape, keep_shape):
        self.prenet.build((None, MEL))
        self.cell.build((None, 10 + 2 * ENC))
        self.query.build((None, DEC))
        self.memory.build((None, S, 2 * ENC))
        self.loc_conv.build((None, S, 1))
        self.loc_dense.build((None, S, 4))
        self.score.build((None, S, ATT))
        self.frame.build((None, DEC + 2 * ENC))

    def call(self, memory, mel, keep):
        b = ops.shape(memory)[0]
        keys = self.memory(memory)
        h = ops.zeros((b, DEC), dtype=memory.dtype)
        context = ops.zeros((b, 2 * ENC), dtype=memory.dtype)
        total = ops.zeros((b, S), dtype=memory.dtype)
        frames = []
        for t in range(T):
            p = self.prenet(mel[:, t])
            h, _ = self.cell(ops.concatenate([p, context], axis=-1), [h])
            where = self.loc_dense(self.loc_conv(total[..., None]))
            e = self.score(ops.tanh(self.query(h)[:, None] + keys + where))[..., 0]
            align = ops.softmax(e - 1e9 * (1.0 - keep), axis=-1)
            total = total + align
            context = ops.sum(align[..., None] * memory, axis=1)
            frames.append(self.frame(ops.concatenate([h, context], axis=-1)))
        return ops.stack(frames, axis=1)


class Keep(layers.Layer):
    """1 for phonemes, 0 for padding, as floats."""

    def call(self, ids):
        return ops.cast(ops.not_equal(ids, 0), self.compute_dtype)


def build():
    ids = keras.Input((S,), dtype="int32", name="phonemes")
    mel = keras.Input((T, MEL), name="mel_in")
    keep = Keep(name="keep")(ids)
    x = layers.Embedding(PHONES, 10, name="embedding")(ids)
    x = x * keep[..., None]
    x = layers.Conv1D(12, 5, padding="same", activation="relu", name="enc_conv")(x)
    x = layers.Bidirectional(layers.GRU(ENC, return_sequences=True), name="enc_rnn")(
        x, mask=ops.not_equal(ids, 0)
    )
    memory = x * keep[..., None]
    coarse = AttentionDecoder(name="decoder")(memory, mel, keep)
    r = layers.Conv1D(8, 5, padding="same", activation="tanh", name="post1")(coarse)
    r = layers.Conv1D(MEL, 5, padding="same", name="post2")(r)
    return keras.Model([ids, mel], coarse + r, name="tacotron_lite")
