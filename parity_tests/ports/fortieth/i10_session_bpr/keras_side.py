import keras
import tensorflow as tf
from keras import layers, ops

N_ITEMS = 60
MAX_LEN = 12
N_CAND = 7
DIM = 16


class ScoreCandidates(layers.Layer):
    """Dot product with the (tied) item vectors, plus popularity."""

    def __init__(self, **kw):
        super().__init__(**kw)
        self.supports_masking = False

    def build(self, *shapes):
        self.popularity = self.add_weight(shape=(N_ITEMS,), initializer="zeros", name="popularity")

    def call(self, user, vectors, ids):
        s = tf.einsum("bd,bkd->bk", user, vectors)
        return s / (float(DIM) ** 0.5) + tf.gather(self.popularity, tf.cast(ids, tf.int32))

    def compute_mask(self, *args, **kwargs):
        return None


def build():
    session = keras.Input((MAX_LEN,), dtype="int32", name="session")
    cands = keras.Input((N_CAND,), dtype="int32", name="candidates")
    items = layers.Embedding(
        N_ITEMS,
        DIM,
        mask_zero=True,
        name="items",
        embeddings_initializer=keras.initializers.RandomNormal(stddev=0.6),
    )
    x = items(session)
    x = layers.Dense(DIM, activation="gelu", name="item_proj")(x)
    x = layers.GRU(24, return_sequences=True, name="gru_low")(x)
    x = layers.GRU(20, name="gru_top")(x)
    u = layers.Dense(DIM, activation="tanh", name="user")(x)
    u = layers.LayerNormalization(name="user_norm")(u)
    scores = ScoreCandidates(name="scores")(u, items(cands), cands)
    return keras.Model({"session": session, "candidates": cands}, scores)


def bpr(y_true, scores):
    """label 1: bought next (first column), 0: sampled negative, -1: no candidate."""
    neg = ops.cast(ops.equal(y_true, 0), scores.dtype)
    margin = scores[:, :1] - scores
    per_neg = ops.softplus(-margin) * neg
    per_session = ops.sum(per_neg, axis=1) / ops.sum(neg, axis=1)
    return ops.mean(per_session)
