import keras
from keras import layers, ops


class GraphAttention(layers.Layer):
    """Attention over neighbours; bonds[b, i, j] is 1 where j sends to i."""

    def __init__(self, heads, width, **kwargs):
        super().__init__(**kwargs)
        self.heads, self.width = heads, width

    def build(self, shape):
        inputs, heads, width = shape[-1], self.heads, self.width
        self.kernel = self.add_weight(
            shape=(inputs, heads * width), initializer="glorot_uniform", name="kernel"
        )
        self.receive = self.add_weight(shape=(heads, width), initializer="glorot_uniform", name="receive")
        self.send = self.add_weight(shape=(heads, width), initializer="glorot_uniform", name="send")
        self.bias = self.add_weight(shape=(heads * width,), initializer="zeros", name="bias")

    def call(self, atoms, bonds):
        count = atoms.shape[1]
        h = ops.reshape(ops.matmul(atoms, self.kernel), (-1, count, self.heads, self.width))
        receive = ops.sum(h * self.receive, -1)
        send = ops.sum(h * self.send, -1)
        scores = ops.leaky_relu(receive[:, :, None] + send[:, None], 0.2)
        scores = ops.where(bonds[..., None] > 0, scores, -1e9)
        weights = ops.softmax(scores, axis=2)
        h = ops.einsum("bijh,bjhd->bihd", weights, h)
        return ops.reshape(h, (-1, count, self.heads * self.width)) + self.bias


class Molecules(keras.Model):
    def __init__(self, width=8, heads=3, rounds=2):
        super().__init__(name="molecules")
        self.embed = layers.Dense(heads * width, name="embed")
        self.rounds = [GraphAttention(heads, width, name=f"round{i}") for i in range(rounds)]
        self.norms = [layers.LayerNormalization(name=f"norm{i}") for i in range(rounds)]
        self.gate = layers.Dense(1, activation="sigmoid", name="gate")
        self.value = layers.Dense(16, activation="elu", name="value")
        self.energy = layers.Dense(1, name="energy")

    def call(self, inputs):
        atoms, bonds = inputs["atoms"], inputs["bonds"]
        present = ops.cast(ops.max(bonds, axis=-1, keepdims=True) > 0, atoms.dtype)
        h = self.embed(atoms)
        for layer, norm in zip(self.rounds, self.norms, strict=True):
            h = h + keras.activations.elu(layer(norm(h), bonds))
        pooled = ops.sum(self.gate(h) * self.value(h) * present, axis=1)
        return self.energy(pooled)


def build():
    model = Molecules()
    model({"atoms": ops.zeros((1, 11, 6)), "bonds": ops.ones((1, 11, 11))})
    return model
