import keras
from keras import layers


class Averager(keras.Model):
    """Deep averaging network over padded token ids (0 is padding)."""

    def __init__(self, vocabulary=90, width=24, hidden=32, classes=5):
        super().__init__(name="averager")
        self.tokens = layers.Embedding(vocabulary, width, mask_zero=True, name="tokens")
        self.project = layers.Dense(hidden, use_bias=False, name="project")
        self.norm = layers.BatchNormalization(momentum=0.95, epsilon=1e-5, name="norm")
        self.act = layers.ReLU(name="act")
        self.drop = layers.Dropout(0.2, name="drop")
        self.pool = layers.GlobalAveragePooling1D(name="pool")
        self.hidden = layers.Dense(hidden, activation="tanh", name="hidden")
        self.logits = layers.Dense(classes, name="logits")

    def call(self, x, training=None):
        h = self.project(self.tokens(x))
        h = self.drop(self.act(self.norm(h, training=training)), training=training)
        return self.logits(self.hidden(self.pool(h)))


def build():
    model = Averager()
    model(keras.ops.ones((1, 14), dtype="int32"))
    return model
