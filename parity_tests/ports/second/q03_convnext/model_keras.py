import keras
from keras import layers, ops


class LayerScale(layers.Layer):
    def __init__(self, init=0.1, **kwargs):
        super().__init__(**kwargs)
        self.init = init

    def build(self, shape):
        self.gamma = self.add_weight(
            shape=(shape[-1],), initializer=keras.initializers.Constant(self.init), name="gamma"
        )

    def call(self, x):
        return x * self.gamma


class Block(layers.Layer):
    def __init__(self, dim, **kwargs):
        super().__init__(**kwargs)
        self.dwconv = layers.DepthwiseConv2D(7, padding="same", name="dwconv")
        self.norm = layers.LayerNormalization(epsilon=1e-6, name="norm")
        self.pwconv1 = layers.Dense(4 * dim, activation="gelu", name="pwconv1")
        self.pwconv2 = layers.Dense(dim, name="pwconv2")
        self.scale = LayerScale(name="scale")

    def call(self, x):
        return x + self.scale(self.pwconv2(self.pwconv1(self.norm(self.dwconv(x)))))


class ConvNeXt(keras.Model):
    def __init__(self, dims=(16, 32), depths=(2, 2), classes=10):
        super().__init__(name="convnext")
        self.downsamplers, self.stages = [], []
        for i, (dim, depth) in enumerate(zip(dims, depths, strict=False)):
            if i == 0:
                down = [
                    layers.Conv2D(dim, 4, 4, name="stem_conv"),
                    layers.LayerNormalization(epsilon=1e-6, name="stem_norm"),
                ]
            else:
                down = [
                    layers.LayerNormalization(epsilon=1e-6, name=f"down{i}_norm"),
                    layers.Conv2D(dim, 2, 2, name=f"down{i}_conv"),
                ]
            self.downsamplers.append(down)
            self.stages.append([Block(dim, name=f"stage{i}_block{j}") for j in range(depth)])
        self.norm = layers.LayerNormalization(epsilon=1e-6, name="norm")
        self.head = layers.Dense(classes, name="head")

    def call(self, x):
        for down, stage in zip(self.downsamplers, self.stages, strict=False):
            for layer in [*down, *stage]:
                x = layer(x)
        return self.head(self.norm(ops.mean(x, axis=(1, 2))))
