import keras
from keras import layers, ops


class WSConv2D(layers.Conv2D):
    def convolution_op(self, inputs, kernel):
        mean = ops.mean(kernel, axis=(0, 1, 2), keepdims=True)
        var = ops.var(kernel, axis=(0, 1, 2), keepdims=True)
        return super().convolution_op(inputs, (kernel - mean) / ops.sqrt(var + 1e-5))


class PreActUnit(layers.Layer):
    def __init__(self, filters, stride, **kw):
        super().__init__(**kw)
        self.filters, self.stride = filters, stride
        self.norm1 = layers.GroupNormalization(4, name="norm1")
        self.conv1 = WSConv2D(filters, 3, strides=stride, padding="same", use_bias=False, name="conv1")
        self.norm2 = layers.GroupNormalization(4, name="norm2")
        self.conv2 = WSConv2D(filters, 3, padding="same", use_bias=False, name="conv2")
        self.short = (
            WSConv2D(filters, 1, strides=stride, use_bias=False, name="short") if stride > 1 else None
        )

    def build(self, shape):
        self.norm1.build(shape)
        self.conv1.build(shape)
        mid = self.conv1.compute_output_shape(shape)
        self.norm2.build(mid)
        self.conv2.build(mid)
        if self.short is not None:
            self.short.build(shape)
        self.built = True

    def call(self, x):
        pre = ops.relu(self.norm1(x))
        skip = x if self.short is None else self.short(pre)
        h = self.conv1(pre)
        h = self.conv2(ops.relu(self.norm2(h)))
        return h + skip


class BiT(keras.Model):
    def __init__(self):
        super().__init__(name="bit")
        self.root = WSConv2D(8, 5, strides=2, padding="same", use_bias=False, name="root")
        self.pool = layers.MaxPooling2D(3, strides=2, padding="same", name="pool")
        self.units = [PreActUnit(8, 1, name="u0"), PreActUnit(16, 2, name="u1"), PreActUnit(16, 1, name="u2")]
        self.norm = layers.GroupNormalization(4, name="norm")
        self.head = layers.Dense(2, name="head")

    def call(self, x, training=None):
        h = self.pool(self.root(x))
        for u in self.units:
            h = u(h)
        return self.head(ops.mean(ops.relu(self.norm(h)), axis=(1, 2)))


def build():
    m = BiT()
    m(ops.zeros((1, 24, 24, 3)))
    return m


def optimizer():
    return keras.optimizers.SGD(0.02, momentum=0.9, nesterov=True, global_clipnorm=0.5)
