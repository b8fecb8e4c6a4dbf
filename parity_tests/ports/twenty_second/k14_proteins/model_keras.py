import keras
from keras import layers, ops


class ContactAttention(layers.Layer):
    def __init__(self, units, **kw):
        super().__init__(**kw)
        self.units = units

    def build(self, nodes_shape, edges_shape):
        u = self.units
        self.w = self.add_weight(shape=(nodes_shape[-1], u), initializer="glorot_uniform", name="w")
        self.a = self.add_weight(shape=(2 * u, 1), initializer="glorot_uniform", name="a")
        self.b = self.add_weight(shape=(u,), initializer="zeros", name="b")

    def call(self, nodes, edges):
        n = nodes.shape[1]
        h = ops.matmul(nodes, self.w)
        src = ops.one_hot(edges[..., 0], n, dtype=h.dtype)
        dst = ops.one_hot(edges[..., 1], n, dtype=h.dtype)
        pair = ops.concatenate([ops.matmul(src, h), ops.matmul(dst, h)], axis=-1)
        e = ops.exp(ops.leaky_relu(ops.matmul(pair, self.a), 0.2)) * ops.sum(dst, axis=-1, keepdims=True)
        total = ops.einsum("ben,bek->bnk", dst, e)
        alpha = e / ops.maximum(ops.matmul(dst, total), 1e-9)
        out = ops.einsum("ben,bed->bnd", dst, alpha * ops.matmul(src, h))
        return ops.elu(out + self.b)


CLASS_WEIGHT = [1.0, 2.5, 0.5]


def balanced_loss(y_true, y_pred):
    ce = keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)
    weight = ops.convert_to_tensor(CLASS_WEIGHT, dtype=y_pred.dtype)
    return ce * ops.take(weight, ops.cast(y_true, "int32"))


def build(residues=10, contacts=26):
    nodes = keras.Input((residues, 5), name="nodes")
    edges = keras.Input((contacts, 2), dtype="int32", name="edges")
    h1 = ContactAttention(14)(nodes, edges)
    h2 = ContactAttention(14)(h1, edges) + h1
    pooled = ops.concatenate([ops.mean(h2, axis=1), ops.max(h2, axis=1)], axis=-1)
    x = layers.Dense(16, activation="relu")(pooled)
    return keras.Model([nodes, edges], layers.Dense(3, name="fold")(x))
