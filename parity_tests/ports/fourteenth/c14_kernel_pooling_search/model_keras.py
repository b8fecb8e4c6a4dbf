"""K-NRM: how well a document answers a query, by soft counts of similar words."""

import keras
from keras import layers, ops

WORDS = 50
CENTERS = (1.0, 0.8, 0.4, 0.0, -0.4, -0.8)
WIDTHS = (0.02, 0.2, 0.2, 0.2, 0.2, 0.2)


class KernelPooling(keras.Model):
    def __init__(self, width=8, **kwargs):
        super().__init__(**kwargs)
        self.words = layers.Embedding(WORDS, width, embeddings_initializer="normal")
        self.combine = layers.Dense(1, activation="tanh")

    def score(self, query, document):
        similarity = ops.einsum(
            "bqd,btd->bqt", ops.normalize(self.words(query)), ops.normalize(self.words(document))
        )
        counts = []
        real = ops.cast(ops.not_equal(document, 0), similarity.dtype)[:, None]
        for center, width in zip(CENTERS, WIDTHS):
            kernel = ops.exp(-ops.square(similarity - center) / (2 * width**2))
            counts.append(ops.sum(kernel * real, axis=-1))
        counts = ops.stack(counts, axis=-1)
        asked = ops.cast(ops.not_equal(query, 0), similarity.dtype)[..., None]
        features = ops.sum(0.1 * ops.log(ops.maximum(counts, 1e-6)) * asked, axis=1)
        return self.combine(features)

    def call(self, inputs):
        query = inputs["query"]
        return ops.concatenate(
            [self.score(query, inputs["clicked"]), self.score(query, inputs["skipped"])], axis=-1
        )


def build():
    model = KernelPooling(name="knrm")
    words = {"query": 4, "clicked": 10, "skipped": 10}
    model({name: ops.ones((1, length), dtype="int32") for name, length in words.items()})
    return model


def loss(y_true, y_pred):
    """Hinge; y_true is how far apart the two documents should be."""
    return ops.relu(y_true[:, 0] - y_pred[:, 0] + y_pred[:, 1])
