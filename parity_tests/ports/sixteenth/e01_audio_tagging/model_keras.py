"""Sound event tagging from log-mel spectrograms: CRNN with attention pooling over the frames of a clip."""

import keras
from keras import layers, ops


class AttentionPooling(layers.Layer):
    """Clip-wise probabilities: frame-wise ones, weighted by an attention of each tag over the real frames."""

    def __init__(self, tags, **kwargs):
        super().__init__(**kwargs)
        self.attention = layers.Dense(tags, activation="tanh", name="attention")
        self.frames = layers.Dense(tags, activation="sigmoid", name="frames")

    def call(self, x, valid):
        scores = ops.where(ops.expand_dims(valid, -1) > 0, self.attention(x), -1e9)
        weights = ops.softmax(scores, axis=1)
        probability = self.frames(x)
        return ops.sum(weights * probability, axis=1), probability


def block(x, filters, pool, name):
    x = layers.Conv2D(filters, 3, padding="same", use_bias=False, name=f"{name}_conv")(x)
    x = layers.BatchNormalization(momentum=0.9, name=f"{name}_bn")(x)
    x = layers.ReLU(name=f"{name}_relu")(x)
    x = layers.AveragePooling2D(pool, name=f"{name}_pool")(x)
    return layers.Dropout(0.2, name=f"{name}_drop")(x)


def build(frames=24, mels=16, tags=5):
    logmel = keras.Input((frames, mels), name="logmel")
    valid = keras.Input((frames,), name="valid")
    x = layers.Reshape((frames, mels, 1))(logmel)
    x = block(x, 8, (1, 2), "b1")
    x = block(x, 16, (2, 2), "b2")
    x = block(x, 16, (1, 2), "b3")
    x = layers.Lambda(lambda t: ops.mean(t, axis=2) + ops.max(t, axis=2), output_shape=(frames // 2, 16))(x)
    kept = layers.Flatten()(layers.MaxPooling1D(2)(layers.Reshape((frames, 1))(valid)))
    x = layers.Bidirectional(layers.GRU(12, return_sequences=True), name="context")(x)
    clip, frame = AttentionPooling(tags, name="pooling")(x, kept)
    return keras.Model([logmel, valid], {"clip": clip, "frame": frame})
