import keras
from keras import layers, ops

SPEAKERS = 8


class StatisticsPooling(layers.Layer):
    """Attentive mean and standard deviation over time."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.score = layers.Dense(16, activation="tanh")
        self.weight = layers.Dense(1, use_bias=False)

    def build(self, shape):
        self.score.build(shape)
        self.weight.build((*shape[:-1], 16))

    def call(self, x):
        a = ops.softmax(self.weight(self.score(x)), axis=1)
        mean = ops.sum(a * x, axis=1)
        variance = ops.sum(a * ops.square(x), axis=1) - ops.square(mean)
        return ops.concatenate([mean, ops.sqrt(ops.maximum(variance, 1e-6))], axis=-1)


class CosineClassifier(layers.Layer):
    def __init__(self, classes, scale, **kwargs):
        super().__init__(**kwargs)
        self.classes, self.scale = classes, scale

    def build(self, shape):
        self.prototypes = self.add_weight(shape=(shape[-1], self.classes), name="prototypes")

    def call(self, x):
        x = ops.normalize(x, axis=-1)
        w = ops.normalize(self.prototypes, axis=0)
        return self.scale * ops.matmul(x, w)


class SpeakerNet(keras.Model):
    def __init__(self):
        super().__init__()
        self.frames = [
            layers.Conv1D(24, 5, padding="same", activation="relu"),
            layers.Conv1D(24, 3, dilation_rate=2, padding="same", activation="relu"),
            layers.Conv1D(32, 3, dilation_rate=3, padding="same", activation="relu"),
            layers.Conv1D(48, 1, activation="relu"),
        ]
        self.norms = [layers.BatchNormalization(momentum=0.9, epsilon=1e-5) for _ in self.frames]
        self.gate1 = layers.Dense(8, activation="relu")
        self.gate2 = layers.Dense(48, activation="hard_sigmoid")
        self.pooling = StatisticsPooling()
        self.embedding = layers.Dense(24)
        self.head = CosineClassifier(SPEAKERS, 12.0)

    def call(self, mel, training=False):
        x = mel - ops.mean(mel, axis=1, keepdims=True)
        for frame, norm in zip(self.frames, self.norms):
            x = norm(frame(x), training=training)
        x = x * self.gate2(self.gate1(ops.mean(x, axis=1)))[:, None]
        return self.head(self.embedding(self.pooling(x)))


def build():
    return SpeakerNet()
