import keras
from keras import layers, ops

NODES, FEATURES, CLASSES = 14, 6, 3


class GraphAttention(layers.Layer):
    """GATv2-like attention over the neighbours and the node itself."""

    def __init__(self, heads, dim, **kwargs):
        super().__init__(**kwargs)
        self.heads, self.dim = heads, dim
        self.source = layers.Dense(heads * dim, name="source")
        self.target = layers.Dense(heads * dim, name="target")

    def build(self, nodes_shape, edges_shape):
        self.score = self.add_weight(shape=(self.heads, self.dim), name="score")
        self.source.build(nodes_shape)
        self.target.build(nodes_shape)

    def call(self, nodes, edges):
        n = nodes.shape[1]
        s = ops.reshape(self.source(nodes), (-1, n, self.heads, self.dim))
        t = ops.reshape(self.target(nodes), (-1, n, self.heads, self.dim))
        pairs = ops.leaky_relu(t[:, :, None] + s[:, None], negative_slope=0.25)
        logits = ops.einsum("bijhd,hd->bijh", pairs, self.score)
        connected = ops.maximum(edges, ops.eye(n, dtype=edges.dtype))
        logits = ops.where(connected[..., None] > 0, logits, -1e9)
        out = ops.einsum("bijh,bjhd->bihd", ops.softmax(logits, axis=2), s)
        return ops.reshape(out, (-1, n, self.heads * self.dim))


def build():
    nodes = keras.Input((NODES, FEATURES), name="nodes")
    edges = keras.Input((NODES, NODES), name="edges")
    present = keras.Input((NODES,), name="present")
    x = layers.Dense(24, name="encode")(nodes)
    for i in range(2):
        h = GraphAttention(3, 8, name=f"attention{i}")(x, edges)
        x = layers.LayerNormalization(epsilon=1e-5, name=f"norm{i}")(layers.Add()([x, layers.ELU()(h)]))
        x = layers.Dropout(0.1)(x)
    weight = layers.Reshape((NODES, 1))(present)
    total = ops.sum(x * weight, axis=1)
    mean = total / ops.maximum(ops.sum(weight, axis=1), 1.0)
    top = ops.max(x + (weight - 1.0) * 1e4, axis=1)
    x = layers.Dense(32, activation="relu", name="readout")(layers.Concatenate()([mean, top]))
    return keras.Model([nodes, edges, present], layers.Dense(CLASSES, name="graph_class")(x))


def optimizer():
    return keras.optimizers.SGD(learning_rate=0.05, momentum=0.9, nesterov=True, clipnorm=0.5)
