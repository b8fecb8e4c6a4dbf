"""Encode-process-decode simulator of grains in a box; accelerations of each grain."""

import keras
from keras import layers, ops


class RunningScale(layers.Layer):
    """Standardises features by moving averages of their mean and of their square."""

    def __init__(self, decay=0.95, **kwargs):
        super().__init__(**kwargs)
        self.decay = decay

    def build(self, shape):
        keep = {"trainable": False, "aggregation": "mean"}
        self.mean = self.add_weight(shape=(shape[-1],), initializer="zeros", name="mean", **keep)
        self.square = self.add_weight(shape=(shape[-1],), initializer="ones", name="square", **keep)

    def call(self, x, training=False):
        if training:
            self.mean.assign(self.decay * self.mean + (1 - self.decay) * ops.mean(x, (0, 1)))
            self.square.assign(self.decay * self.square + (1 - self.decay) * ops.mean(ops.square(x), (0, 1)))
        variance = ops.maximum(self.square - ops.square(self.mean), 1e-2)
        return (x - self.mean) / ops.sqrt(variance)


def mlp(width, name):
    return keras.Sequential(
        [
            layers.Dense(width, activation="relu"),
            layers.Dense(width),
            layers.LayerNormalization(epsilon=1e-5),
        ],
        name=name,
    )


class Simulator(keras.Model):
    def __init__(self, width=12, rounds=3):
        super().__init__()
        self.scale = RunningScale()
        self.encode_nodes = mlp(width, "encode_nodes")
        self.encode_edges = mlp(width, "encode_edges")
        self.edge_nets = [mlp(width, f"edge_{i}") for i in range(rounds)]
        self.node_nets = [mlp(width, f"node_{i}") for i in range(rounds)]
        self.decode = keras.Sequential(
            [layers.Dense(width, activation="relu"), layers.Dense(2)], name="decode"
        )

    def call(self, inputs, training=False):
        pos, vel, mask = inputs["pos"], inputs["vel"], inputs["edge_mask"]
        count = pos.shape[1]
        send = ops.one_hot(inputs["senders"], count, dtype=vel.dtype)
        receive = ops.one_hot(inputs["receivers"], count, dtype=vel.dtype)
        offset = ops.matmul(send, pos) - ops.matmul(receive, pos)
        distance = ops.sqrt(ops.sum(ops.square(offset), -1, keepdims=True) + 1e-6)
        nodes = self.encode_nodes(self.scale(vel, training=training))
        edges = self.encode_edges(ops.concatenate([offset, distance], -1))
        for edge_net, node_net in zip(self.edge_nets, self.node_nets):
            both = [ops.matmul(send, nodes), ops.matmul(receive, nodes)]
            edges = edges + edge_net(ops.concatenate([edges, *both], -1))
            arriving = ops.matmul(ops.transpose(receive, (0, 2, 1)), edges * mask[..., None])
            nodes = nodes + node_net(ops.concatenate([nodes, arriving], -1))
        return self.decode(nodes)


def build():
    return Simulator()


def loss(y_true, y_pred):
    """Squared error of the grains that can move."""
    free = y_true[..., 2]
    error = ops.sum(ops.square(y_true[..., :2] - y_pred), -1)
    return ops.sum(error * free, -1) / ops.sum(free, -1)
