import keras
import tensorflow as tf
from keras import layers

AGE_MEAN, AGE_SD = 55.0, 17.0
MIN_VAR = 1e-3


@keras.saving.register_keras_serializable()
class ChannelGate(layers.Layer):
    def __init__(self, ratio=4, **kw):
        super().__init__(**kw)
        self.ratio = ratio

    def build(self, shape):
        c = shape[-1]
        self.squeeze = layers.Dense(c // self.ratio, activation="relu", name="squeeze")
        self.excite = layers.Dense(c, activation="sigmoid", name="excite")
        self.squeeze.build((None, c))
        self.excite.build((None, c // self.ratio))

    def call(self, x):
        s = tf.reduce_mean(x, axis=1, keepdims=True)
        return x * self.excite(self.squeeze(s))


class ResUnit(layers.Layer):
    """pre-activation, the first norm is shared by both ways where the shape changes"""

    def __init__(self, filters, kernel, stride=1, **kw):
        super().__init__(**kw)
        self.stride, self.filters = stride, filters
        self.bn1 = layers.BatchNormalization(epsilon=1e-5, momentum=0.9, name="bn1")
        self.conv1 = layers.Conv1D(
            filters, kernel, strides=stride, padding="same", use_bias=False, name="conv1"
        )
        self.bn2 = layers.BatchNormalization(epsilon=1e-5, momentum=0.9, name="bn2")
        self.drop = layers.SpatialDropout1D(0.1)
        self.conv2 = layers.Conv1D(filters, kernel, padding="same", use_bias=False, name="conv2")
        self.gate = ChannelGate(name="gate")

    def build(self, shape):
        self.bn1.build(shape)
        self.conv1.build(shape)
        mid = self.conv1.compute_output_shape(shape)
        self.bn2.build(mid)
        self.conv2.build(mid)
        self.gate.build(mid)
        self.short = None
        if shape[-1] != self.filters:
            self.short = layers.Conv1D(self.filters, 1, name="short")
            self.short.build(shape)

    def call(self, x, training=None):
        a = tf.nn.relu(self.bn1(x, training=training))
        y = self.conv1(a)
        y = tf.nn.relu(self.bn2(y, training=training))
        y = self.gate(self.conv2(self.drop(y, training=training)))
        if self.short is not None:
            # blur, then 1x1
            x = self.short(tf.nn.avg_pool1d(a, self.stride + 1, self.stride, "SAME"))
        return x + y


class Standardise(layers.Layer):
    """each lead of a record to zero mean and unit deviation"""

    def call(self, x):
        mean, var = tf.nn.moments(x, axes=[1], keepdims=True)
        return (x - mean) / (tf.sqrt(var) + 1e-3)


def build():
    ecg = layers.Input((256, 4), name="ecg")
    sex = layers.Input((), dtype="int32", name="sex")
    x = Standardise(name="standardise")(ecg)
    x = layers.Conv1D(12, 9, strides=2, padding="same", use_bias=False, name="stem")(x)
    x = layers.MaxPooling1D(3, strides=2, padding="same")(x)
    x = ResUnit(12, 7, name="unit_0")(x)
    x = ResUnit(16, 7, stride=2, name="unit_1")(x)
    x = ResUnit(24, 5, stride=2, name="unit_2")(x)
    x = layers.BatchNormalization(epsilon=1e-5, momentum=0.9, name="bn_final")(x)
    x = layers.ReLU()(x)
    x = layers.GlobalAveragePooling1D()(x)
    x = layers.Concatenate()([x, layers.CategoryEncoding(2, output_mode="one_hot", name="sex_code")(sex)])
    x = layers.Dense(16, activation="mish", name="trunk")(x)
    mean = layers.Dense(1, name="mean")(x)
    var = layers.Dense(1, activation="softplus", name="var")(x)
    return keras.Model({"ecg": ecg, "sex": sex}, layers.Concatenate(name="age")([mean, var]), name="ecg_age")


def beta_nll(y, out):
    """Seitzer et al. 2022 with beta = 0.5; age in standard units"""
    mean, var = out[:, 0], out[:, 1] + MIN_VAR
    z = (tf.cast(y, out.dtype)[:, 0] - AGE_MEAN) / AGE_SD
    nll = 0.5 * (tf.math.log(var) + tf.square(z - mean) / var)
    return tf.sqrt(tf.stop_gradient(var)) * nll


def optimizer():
    lr = keras.optimizers.schedules.CosineDecay(
        5e-4, decay_steps=40, alpha=0.05, warmup_target=0.005, warmup_steps=10
    )
    return keras.optimizers.SGD(lr, momentum=0.9, nesterov=True)
