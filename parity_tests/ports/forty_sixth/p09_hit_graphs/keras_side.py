"""Track finding: an interaction network that tells which pairs of detector hits belong to one particle."""

import math

import keras
from keras import layers, ops

HITS, EDGES, WIDTH, ROUNDS = 24, 64, 24, 3


def mlp(width, name, final_norm=True):
    parts = [layers.Dense(2 * width, activation="silu"), layers.Dense(width)]
    if final_norm:
        parts.append(layers.LayerNormalization(epsilon=1e-5))
    return keras.Sequential(parts, name=name)


def geometry(hits, senders, receivers):
    """Differences between the two ends of each segment; angles are wrapped into [-pi, pi]."""
    a = ops.take_along_axis(hits, senders, axis=1)
    b = ops.take_along_axis(hits, receivers, axis=1)
    radius, angle, z = ops.unstack(b - a, axis=-1)
    angle = ops.arctan2(ops.sin(angle), ops.cos(angle))
    slope = angle / (ops.abs(radius) + 0.05)
    return ops.stack([radius, angle, z, slope], axis=-1)


@keras.saving.register_keras_serializable("hit_graphs")
class InteractionNetwork(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.node_encoder = mlp(WIDTH, "node_encoder")
        self.edge_encoder = mlp(WIDTH, "edge_encoder")
        self.edge_model = mlp(WIDTH, "edge_model")  # the same in all rounds
        self.node_model = mlp(WIDTH, "node_model")
        self.gate = layers.Dense(1, activation="sigmoid", name="gate")
        self.decoder = mlp(WIDTH, "decoder", final_norm=False)
        self.logit = layers.Dense(1, name="logit")

    def call(self, inputs):
        hits, segments, present = inputs["hits"], ops.cast(inputs["segments"], "int32"), inputs["present"]
        senders, receivers = segments[..., :1], segments[..., 1:]
        present = ops.expand_dims(ops.cast(present, self.compute_dtype), -1)
        incidence = ops.one_hot(receivers[..., 0], HITS, dtype=self.compute_dtype) * present
        degree = ops.expand_dims(ops.sum(incidence, axis=1), -1)

        azimuth = hits[..., 1:2]
        position = ops.concatenate([hits[..., :1], ops.cos(azimuth), ops.sin(azimuth), hits[..., 2:]], -1)
        nodes = first = self.node_encoder(position)
        edges = self.edge_encoder(geometry(hits, senders, receivers))
        for _ in range(ROUNDS):
            ends = [
                ops.take_along_axis(nodes, senders, axis=1),
                ops.take_along_axis(nodes, receivers, axis=1),
            ]
            edges = edges + self.edge_model(ops.concatenate([edges] + ends, -1))
            messages = self.gate(edges) * edges
            total = ops.einsum("ben,bec->bnc", incidence, messages)
            mean = total / ops.maximum(degree, 1.0)
            nodes = nodes + self.node_model(ops.concatenate([nodes, first, total / math.sqrt(8.0), mean], -1))
        ends = [ops.take_along_axis(nodes, senders, axis=1), ops.take_along_axis(nodes, receivers, axis=1)]
        logits = self.logit(ops.silu(self.decoder(ops.concatenate([edges] + ends, -1))))
        return ops.squeeze(logits * present, -1)


def build():
    model = InteractionNetwork()
    model(
        {
            "hits": ops.zeros((1, HITS, 3)),
            "segments": ops.zeros((1, EDGES, 2), "int32"),
            "present": ops.ones((1, EDGES)),
        }
    )
    return model


def loss(targets, outputs):
    """Focal loss over the segments that exist; padding is marked by -1."""
    targets = ops.cast(targets, outputs.dtype)
    real = ops.cast(targets >= 0, outputs.dtype)
    labels = ops.maximum(targets, 0.0)
    entropy = ops.binary_crossentropy(labels, outputs, from_logits=True)
    truth = ops.sigmoid(outputs) * labels + (1 - ops.sigmoid(outputs)) * (1 - labels)
    balance = 0.75 * labels + 0.25 * (1 - labels)
    return ops.sum(real * balance * (1 - truth) ** 2 * entropy) / ops.sum(real)
