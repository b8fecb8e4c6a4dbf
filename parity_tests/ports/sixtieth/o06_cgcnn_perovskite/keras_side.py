"""CGCNN: formation energies of perovskites from crystal graphs.

elements: 1 to 16, 0 fills up; neighbours: places of up to six neighbours, -1 where there are fewer; distances in angstrom.
"""

import keras
import numpy as np
from keras import layers, ops

ELEMENTS, ATOMS, NEIGHBOURS = 16, 10, 6
CENTRES = np.linspace(0.8, 4.2, 12).astype(np.float32)
WIDTH = 0.3


class CrystalConv(layers.Layer):
    def __init__(self, features, **kwargs):
        super().__init__(**kwargs)
        self.features = features
        self.full = layers.Dense(2 * features, name="full")
        self.norm_full = layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name="norm_full")
        self.norm_sum = layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name="norm_sum")

    def call(self, v, edges, index, bond, atom, training=None):
        batch, n, m = ops.shape(v)[0], ATOMS, NEIGHBOURS
        flat = ops.reshape(index, (-1, n * m, 1))
        far = ops.take_along_axis(v, ops.broadcast_to(flat, (batch, n * m, self.features)), axis=1)
        far = ops.reshape(far, (-1, n, m, self.features))
        near = ops.broadcast_to(v[:, :, None], ops.shape(far))
        z = self.full(ops.concatenate([near, far, edges], axis=-1))
        z = self.norm_full(z, training=training, mask=bond)
        gate, core = ops.split(z, 2, axis=-1)
        message = ops.sigmoid(gate) * ops.softplus(core) * ops.cast(bond, z.dtype)[..., None]
        total = self.norm_sum(ops.sum(message, axis=2), training=training, mask=atom)
        return ops.softplus(v + total)


class CGCNN(keras.Model):
    def __init__(self, features=16, convs=3, hidden=32):
        super().__init__(name="cgcnn")
        self.element = layers.Embedding(ELEMENTS + 1, features, name="element")
        self.convs = [CrystalConv(features, name=f"conv_{i}") for i in range(convs)]
        self.hidden = layers.Dense(hidden, activation="softplus", name="hidden")
        self.energy = layers.Dense(1, name="energy")

    def call(self, inputs, training=None):
        elements, index, distances = inputs["elements"], inputs["neighbours"], inputs["distances"]
        atom = ops.greater(elements, 0)
        bond = ops.greater_equal(index, 0)
        index = ops.maximum(index, 0)
        edges = ops.exp(-ops.square((distances[..., None] - CENTRES) / WIDTH))
        v = self.element(elements)
        for conv in self.convs:
            v = conv(v, edges, index, bond, atom, training=training)
        weight = ops.cast(atom, v.dtype)[..., None]
        crystal = ops.sum(v * weight, axis=1) / ops.sum(weight, axis=1)
        return self.energy(self.hidden(ops.softplus(crystal)))


def build():
    model = CGCNN()
    model(
        {
            "elements": np.ones((2, ATOMS), "int32"),
            "neighbours": np.zeros((2, ATOMS, NEIGHBOURS), "int32"),
            "distances": np.ones((2, ATOMS, NEIGHBOURS), "float32"),
        }
    )
    return model
