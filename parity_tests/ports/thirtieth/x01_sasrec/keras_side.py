"""Self-attentive sequential recommendation (SASRec), next-item prediction.

Sessions are padded on the LEFT with item id 0.
"""

import keras
from keras import layers, ops

N_ITEMS = 30
MAXLEN = 14
DIM = 20
HEADS = 2
BLOCKS = 2


class CausalItemAttention(layers.Layer):
    def __init__(self, dim, heads, **kw):
        super().__init__(**kw)
        self.dim, self.heads = dim, heads
        self.wq = layers.Dense(dim, name="wq")
        self.wk = layers.Dense(dim, name="wk")
        self.wv = layers.Dense(dim, name="wv")

    def _split(self, x):
        b, t = ops.shape(x)[0], ops.shape(x)[1]
        x = ops.reshape(x, (b, t, self.heads, self.dim // self.heads))
        return ops.transpose(x, (0, 2, 1, 3))

    def call(self, queries, keys, valid):
        q = self._split(self.wq(queries))
        k = self._split(self.wk(keys))
        v = self._split(self.wv(keys))
        scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2)))
        scores = scores / (self.dim // self.heads) ** 0.5
        t = scores.shape[-1]
        steps = ops.arange(t)
        causal = steps[None, :] <= steps[:, None]
        allowed = ops.logical_and(causal[None, None], valid[:, None, None, :])
        scores = ops.where(allowed, scores, -1e9)
        weights = ops.softmax(scores, axis=-1)
        # rows that look at nothing (padding queries) give nothing
        weights = weights * ops.cast(valid, weights.dtype)[:, None, :, None]
        out = ops.transpose(ops.matmul(weights, v), (0, 2, 1, 3))
        return ops.reshape(out, (ops.shape(out)[0], t, self.dim))


class SASRec(keras.Model):
    def __init__(self, **kw):
        super().__init__(**kw)
        self.item_emb = layers.Embedding(N_ITEMS + 1, DIM, name="item_emb")
        self.pos_emb = layers.Embedding(MAXLEN, DIM, name="pos_emb")
        self.q_norms, self.attns, self.f_norms, self.ffn1, self.ffn2 = [], [], [], [], []
        for i in range(BLOCKS):
            self.q_norms.append(layers.LayerNormalization(epsilon=1e-8, name=f"q_norm_{i}"))
            self.attns.append(CausalItemAttention(DIM, HEADS, name=f"attn_{i}"))
            self.f_norms.append(layers.LayerNormalization(epsilon=1e-8, name=f"f_norm_{i}"))
            self.ffn1.append(layers.Conv1D(DIM, 1, activation="relu", name=f"ffn1_{i}"))
            self.ffn2.append(layers.Conv1D(DIM, 1, name=f"ffn2_{i}"))
        self.last_norm = layers.LayerNormalization(epsilon=1e-8, name="last_norm")

    def call(self, x):
        valid = ops.not_equal(x, 0)
        keep = ops.expand_dims(ops.cast(valid, self.compute_dtype), -1)
        seq = self.item_emb(x) * DIM**0.5
        seq = seq + self.pos_emb(ops.arange(MAXLEN))[None]
        seq = seq * keep
        for qn, attn, fn, f1, f2 in zip(self.q_norms, self.attns, self.f_norms, self.ffn1, self.ffn2):
            q = qn(seq)
            seq = q + attn(q, seq, valid)
            h = fn(seq)
            seq = (h + f2(f1(h))) * keep
        seq = self.last_norm(seq)
        return ops.matmul(seq, ops.transpose(self.item_emb.embeddings))


def next_item_loss(y_true, y_pred):
    """Cross entropy over real positions: every session weighs the same."""
    y_true = ops.cast(y_true, "int32")
    real = ops.cast(ops.not_equal(y_true, 0), y_pred.dtype)
    nll = keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)
    per_session = ops.sum(nll * real, axis=1) / ops.maximum(ops.sum(real, axis=1), 1.0)
    return ops.mean(per_session)


def build():
    model = SASRec(name="sasrec")
    model(ops.zeros((1, MAXLEN), dtype="int32"))
    return model
