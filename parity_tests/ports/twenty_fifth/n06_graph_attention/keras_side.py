"""Property of small molecules: graph attention on dense adjacency matrices, AdamW without decay of biases and norms."""

import keras
from keras import layers, ops


class GraphAttention(layers.Layer):
    def __init__(self, heads, dim, **kwargs):
        super().__init__(**kwargs)
        self.heads, self.dim = heads, dim

    def build(self, shape):
        self.project = layers.Dense(self.heads * self.dim, use_bias=False, name="project")
        self.project.build(shape)
        init = keras.initializers.GlorotNormal()
        self.from_vector = self.add_weight(shape=(self.heads, self.dim), name="from_vector", initializer=init)
        self.to_vector = self.add_weight(shape=(self.heads, self.dim), name="to_vector", initializer=init)
        self.bias = self.add_weight(shape=(self.heads * self.dim,), name="bias", initializer="zeros")

    def call(self, nodes, adjacency):
        n = nodes.shape[1]
        h = ops.reshape(self.project(nodes), (-1, n, self.heads, self.dim))
        sender = ops.sum(h * self.from_vector, axis=-1)
        receiver = ops.sum(h * self.to_vector, axis=-1)
        score = receiver[:, :, None] + sender[:, None, :]
        score = ops.maximum(score, 0.2 * score)
        score = ops.where(adjacency[..., None] > 0, score, -1e9)
        weight = ops.softmax(score, axis=2)
        h = ops.einsum("bijh,bjhd->bihd", weight, h)
        return ops.reshape(h, (-1, n, self.heads * self.dim)) + self.bias


class MoleculeNet(keras.Model):
    def __init__(self):
        super().__init__(name="molecule_net")
        self.embed = layers.Dense(12, name="embed")
        self.attention = [GraphAttention(3, 4, name=f"attention{i}") for i in range(2)]
        self.norms = [layers.LayerNormalization(name=f"norm{i}") for i in range(2)]
        self.readout = layers.Dense(10, activation="softplus", name="readout")
        self.property = layers.Dense(1, name="property")

    def call(self, inputs):
        nodes, adjacency = inputs["nodes"], inputs["adjacency"]
        real = ops.cast(ops.max(adjacency, axis=-1, keepdims=True) > 0, nodes.dtype)
        h = self.embed(nodes)
        for attention, norm in zip(self.attention, self.norms):
            h = norm(h + keras.activations.gelu(attention(h, adjacency))) * real
        mean = ops.sum(h, axis=1) / ops.maximum(ops.sum(real, axis=1), 1)
        top = ops.max(h + (real - 1) * 1e4, axis=1)
        return self.property(self.readout(ops.concatenate([mean, top], axis=-1)))


def build():
    return MoleculeNet()


def optimizer():
    adamw = keras.optimizers.AdamW(learning_rate=5e-3, weight_decay=0.05, beta_2=0.98)
    adamw.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    return adamw
