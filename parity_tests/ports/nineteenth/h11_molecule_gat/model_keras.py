"""A property of small molecules by graph attention (GAT, two layers, several heads)."""

import keras
from keras import layers, ops


class GraphAttention(layers.Layer):
    def __init__(self, units, heads, merge="concat", **kwargs):
        super().__init__(**kwargs)
        self.units, self.heads, self.merge = units, heads, merge

    def build(self, shapes):
        features = shapes[0][-1]
        self.kernel = self.add_weight(
            shape=(features, self.heads, self.units), initializer="glorot_uniform", name="kernel"
        )
        self.to = self.add_weight(shape=(self.heads, self.units), initializer="glorot_uniform", name="to")
        self.source = self.add_weight(
            shape=(self.heads, self.units), initializer="glorot_uniform", name="source"
        )
        self.bias = self.add_weight(
            shape=(self.heads * self.units if self.merge == "concat" else self.units,),
            initializer="zeros",
            name="bias",
        )

    def call(self, inputs):
        x, bonds = inputs
        h = ops.einsum("bnf,fhu->bnhu", x, self.kernel)
        to = ops.sum(h * self.to, axis=-1)
        source = ops.sum(h * self.source, axis=-1)
        e = ops.leaky_relu(to[:, :, None] + source[:, None], negative_slope=0.2)
        e = ops.where(bonds[..., None] > 0, e, -1e9)
        a = ops.softmax(e, axis=2)
        out = ops.einsum("bijh,bjhu->bihu", a, h)
        if self.merge == "concat":
            out = ops.reshape(out, (-1, out.shape[1], self.heads * self.units))
        else:
            out = ops.mean(out, axis=2)
        return out + self.bias


class MoleculeGAT(keras.Model):
    def __init__(self, kinds=6, width=8):
        super().__init__(name="molecule_gat")
        self.embed = layers.Embedding(kinds + 1, width, embeddings_initializer="glorot_normal", name="embed")
        self.gat1 = GraphAttention(6, 3, name="gat1")
        self.gat2 = GraphAttention(10, 2, merge="mean", name="gat2")
        self.hidden = layers.Dense(12, activation="silu", name="hidden")
        self.out = layers.Dense(1, name="out")

    def call(self, inputs):
        atoms, bonds = inputs["atoms"], inputs["bonds"]
        x = ops.elu(self.gat1([self.embed(atoms), bonds]))
        x = ops.elu(self.gat2([x, bonds]))
        real = ops.cast(ops.not_equal(atoms, 0), x.dtype)[..., None]
        pooled = ops.sum(x * real, axis=1) / ops.sum(real, axis=1)
        return self.out(self.hidden(pooled))
