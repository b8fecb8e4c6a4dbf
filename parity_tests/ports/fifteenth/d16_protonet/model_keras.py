"""Prototypical networks: each sample is an episode of 3 ways, 2 shots (way by way) and 4 queries."""

import keras
from keras import layers, ops

WAYS, SHOTS, QUERIES, SIZE = 3, 2, 4, 12


class Encoder(keras.Model):
    def __init__(self, width=12, embedding=16, **kwargs):
        super().__init__(**kwargs)
        self.net = keras.Sequential()
        for _ in range(2):
            self.net.add(layers.Conv2D(width, 3, padding="same", use_bias=False))
            self.net.add(layers.GroupNormalization(groups=3))
            self.net.add(layers.Activation("silu"))
            self.net.add(layers.MaxPooling2D())
        self.net.add(layers.Flatten())
        self.net.add(layers.Dense(embedding))

    def call(self, episodes):
        items = episodes.shape[1]
        flat = self.net(ops.reshape(episodes, (-1, SIZE, SIZE, 1)))
        return ops.reshape(flat, (-1, items, flat.shape[-1]))


class ProtoNet(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.log_scale = self.add_weight(
            shape=(), initializer=keras.initializers.Constant(-1.0), name="log_scale"
        )

    def call(self, inputs):
        support, query = self.encoder(inputs["support"]), self.encoder(inputs["query"])
        support = ops.reshape(support, (-1, WAYS, SHOTS, support.shape[-1]))
        prototypes = ops.mean(support, axis=2)
        delta = ops.expand_dims(query, 2) - ops.expand_dims(prototypes, 1)
        return -ops.exp(self.log_scale) * ops.sum(ops.square(delta), axis=-1)


def build():
    model = ProtoNet()
    model(
        {
            "support": ops.zeros((1, WAYS * SHOTS, SIZE, SIZE, 1)),
            "query": ops.zeros((1, QUERIES, SIZE, SIZE, 1)),
        }
    )
    model.compile(
        keras.optimizers.AdamW(1e-3, weight_decay=0.01),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


training_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
