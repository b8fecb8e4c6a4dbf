"""GoogLeNet in small for leaf diseases: three inception blocks and an auxiliary classifier."""

import keras
from keras import layers, ops

CLASSES = 6


class ConvBN(layers.Layer):
    def __init__(self, filters, size, strides=1, **kwargs):
        super().__init__(**kwargs)
        self.conv = layers.Conv2D(filters, size, strides, padding="same", use_bias=False)
        self.bn = layers.BatchNormalization(momentum=0.9, scale=False)

    def call(self, x, training=None):
        return ops.relu(self.bn(self.conv(x), training=training))


class Inception(layers.Layer):
    def __init__(self, f1, f3r, f3, f5r, f5, pool, **kwargs):
        super().__init__(**kwargs)
        self.b1 = ConvBN(f1, 1)
        self.b3r, self.b3 = ConvBN(f3r, 1), ConvBN(f3, 3)
        self.b5r, self.b5 = ConvBN(f5r, 1), ConvBN(f5, 5)
        self.pool = layers.MaxPooling2D(3, 1, padding="same")
        self.proj = ConvBN(pool, 1)

    def call(self, x, training=None):
        branches = [
            self.b1(x, training=training),
            self.b3(self.b3r(x, training=training), training=training),
            self.b5(self.b5r(x, training=training), training=training),
            self.proj(self.pool(x), training=training),
        ]
        return ops.concatenate(branches, axis=-1)


class LeafNet(keras.Model):
    def __init__(self, aux_weight=0.3):
        super().__init__()
        self.aux_weight = aux_weight
        self.stem = ConvBN(8, 7, strides=2)
        self.stem_pool = layers.MaxPooling2D(3, 2, padding="same")
        self.inc_a = Inception(8, 6, 8, 4, 4, 4)
        self.inc_b = Inception(8, 8, 12, 4, 6, 6)
        self.inc_c = Inception(12, 8, 16, 4, 8, 8)
        self.aux_pool = layers.AveragePooling2D(3, 2, padding="same")
        self.aux_conv = ConvBN(8, 1)
        self.aux_dense = layers.Dense(24, activation="relu")
        self.aux_drop = layers.Dropout(0.5)
        self.aux_out = layers.Dense(CLASSES)
        self.gap = layers.GlobalAveragePooling2D()
        self.drop = layers.Dropout(0.4)
        self.out = layers.Dense(CLASSES)

    def call(self, x, training=None):
        x = self.stem_pool(self.stem(x, training=training))
        x = self.inc_a(x, training=training)
        a = self.aux_conv(self.aux_pool(x), training=training)
        a = self.aux_dense(ops.reshape(a, (-1, 3 * 3 * 8)))
        aux = self.aux_out(self.aux_drop(a, training=training))
        x = self.inc_c(self.inc_b(x, training=training), training=training)
        main = self.out(self.drop(self.gap(x), training=training))
        return main, aux

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        y = ops.one_hot(ops.cast(ops.reshape(y, (-1,)), "int32"), CLASSES, dtype=y_pred[0].dtype)
        xent = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)
        main, aux = y_pred
        return xent(y, main) + self.aux_weight * xent(y, aux)


def build():
    model = LeafNet()
    model(ops.zeros((1, 24, 24, 3)))
    model.compile(optimizer=keras.optimizers.SGD(0.02, momentum=0.9))
    return model
