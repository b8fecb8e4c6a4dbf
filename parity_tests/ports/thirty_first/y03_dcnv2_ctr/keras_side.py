"""DCN-v2 (parallel, low rank crosses) for click prediction."""

import keras
from keras import layers, ops, regularizers

VOCABS = [12, 30, 7, 20, 5]
EMB = 4


@keras.saving.register_keras_serializable("ctr")
class LowRankCross(layers.Layer):
    def __init__(self, rank, **kwargs):
        super().__init__(**kwargs)
        self.rank = rank

    def build(self, shape):
        x0_shape = (
            shape[0] if isinstance(shape, (list, tuple)) and isinstance(shape[0], (list, tuple)) else shape
        )
        d = x0_shape[-1]
        self.v = layers.Dense(self.rank, use_bias=False, name="v")
        self.u = layers.Dense(d, name="u")
        self.v.build(x0_shape)
        self.u.build((None, self.rank))

    def call(self, inputs):
        x0, xl = inputs
        return x0 * self.u(self.v(xl)) + xl

    def compute_output_shape(self, shape):
        return shape[0]


def build():
    dense = keras.Input((6,), name="dense")
    sparse = keras.Input((len(VOCABS),), dtype="int32", name="sparse")
    embs = []
    for i, n in enumerate(VOCABS):
        table = layers.Embedding(
            n,
            EMB,
            embeddings_regularizer=regularizers.L2(1e-4),
            name=f"emb_{i}",
            embeddings_initializer=keras.initializers.RandomNormal(stddev=0.3),
        )
        embs.append(table(sparse[:, i]))
    x0 = layers.Concatenate(name="x0")(embs + [dense])

    cross = x0
    for l in range(3):
        cross = LowRankCross(8, name=f"cross_{l}")([x0, cross])

    deep = x0
    for l, units in enumerate((32, 16)):
        deep = layers.Dense(units, activation="relu", name=f"deep_{l}")(deep)
        deep = layers.Dropout(0.1)(deep)

    logit = layers.Dense(1, name="ctr_logit")(layers.Concatenate()([cross, deep]))
    return keras.Model({"dense": dense, "sparse": sparse}, logit)


def loss(y_true, y_pred):
    y_true = ops.reshape(ops.cast(y_true, y_pred.dtype), (-1,))
    return ops.binary_crossentropy(y_true, ops.reshape(y_pred, (-1,)), from_logits=True)
