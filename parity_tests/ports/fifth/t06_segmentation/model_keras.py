"""Cell outlines: a small residual U-Net, trained by cross-entropy and dice."""

import keras
from keras import layers, ops


@keras.saving.register_keras_serializable("cells")
class Stage(layers.Layer):
    def __init__(self, filters, **kwargs):
        super().__init__(**kwargs)
        self.conv1 = layers.Conv2D(filters, 3, padding="same", use_bias=False, name="conv1")
        self.norm1 = layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name="norm1")
        self.conv2 = layers.Conv2D(filters, 3, padding="same", use_bias=False, name="conv2")
        self.norm2 = layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name="norm2")
        self.skip = layers.Conv2D(filters, 1, name="skip")

    def call(self, x, training=None):
        y = ops.relu(self.norm1(self.conv1(x), training=training))
        y = self.norm2(self.conv2(y), training=training)
        return ops.relu(y + self.skip(x))


@keras.saving.register_keras_serializable("cells")
class Cells(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.down = [Stage(f, name=f"down_{i}") for i, f in enumerate((8, 16))]
        self.bottom = Stage(24, name="bottom")
        self.expand = [
            layers.Conv2DTranspose(f, 3, strides=2, padding="same", name=f"expand_{i}")
            for i, f in enumerate((16, 8))
        ]
        self.up = [Stage(f, name=f"up_{i}") for i, f in enumerate((16, 8))]
        self.mask = layers.Conv2D(1, 1, name="mask")
        self.pool = layers.MaxPooling2D()

    def call(self, x, training=None):
        kept = []
        for stage in self.down:
            x = stage(x, training=training)
            kept.append(x)
            x = self.pool(x)
        x = self.bottom(x, training=training)
        for expand, stage in zip(self.expand, self.up):
            x = ops.concatenate([kept.pop(), expand(x)], axis=-1)
            x = stage(x, training=training)
        return self.mask(x)


def loss(y_true, y_pred):
    y_true = ops.cast(y_true, y_pred.dtype)
    entropy = ops.mean(keras.losses.binary_crossentropy(y_true, y_pred, from_logits=True), axis=(1, 2))
    p = ops.sigmoid(y_pred)
    axes = (1, 2, 3)
    overlap = 2 * ops.sum(p * y_true, axis=axes) + 1
    total = ops.sum(p, axis=axes) + ops.sum(y_true, axis=axes) + 1
    return entropy + 1 - overlap / total


def build():
    return Cells(name="cells")
