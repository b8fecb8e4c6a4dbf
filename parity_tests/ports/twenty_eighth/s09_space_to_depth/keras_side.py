import keras
from keras import layers, ops


class SpaceToDepth(layers.Layer):
    def __init__(self, block=2, **kw):
        super().__init__(**kw)
        self.block = block

    def call(self, x):
        r = self.block
        _, h, w, c = x.shape
        x = ops.reshape(x, (-1, h // r, r, w // r, r, c))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
        return ops.reshape(x, (-1, h // r, w // r, r * r * c))

    def compute_output_shape(self, s):
        r = self.block
        return (s[0], s[1] // r, s[2] // r, s[3] * r * r)


def build():
    return keras.Sequential(
        [
            keras.Input((16, 16, 3), name="x"),
            layers.Conv2D(6, 3, padding="same", activation="elu", name="stem"),
            SpaceToDepth(2, name="pack1"),
            layers.GroupNormalization(4, epsilon=1e-5, name="gn1"),
            layers.Conv2D(10, 3, padding="same", activation="elu", name="conv1"),
            SpaceToDepth(2, name="pack2"),
            layers.LayerNormalization(epsilon=1e-5, name="ln2"),
            layers.Conv2D(12, 1, activation="elu", name="conv2"),
            layers.Flatten(name="flat"),
            layers.Dense(3, name="fc"),
        ],
        name="packnet",
    )
