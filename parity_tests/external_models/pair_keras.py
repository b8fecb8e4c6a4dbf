"""Keras models for the tests of `parity pair`: what a user may come with."""

import keras
import tensorflow as tf
from keras import layers, ops


def cnn(epsilon=1e-5, residual=True, activation="relu"):
    """A small residual net with a square dense layer."""
    image = keras.Input((8, 8, 3), name="image")
    x = layers.Conv2D(6, 3, padding="same", name="conv1")(image)
    x = layers.Activation(activation, name="act1")(x)
    y = layers.Conv2D(6, 3, padding="same", name="conv2")(x)
    if residual:
        y = layers.Add(name="join")([x, y])
    y = layers.GroupNormalization(2, epsilon=epsilon, name="norm")(y)
    y = layers.MaxPooling2D(2, name="pool")(y)
    y = layers.Flatten(name="flat")(y)
    y = layers.Dense(16, activation="tanh", name="hidden")(y)
    y = layers.Dense(16, activation="tanh", name="square")(y)
    model = keras.Model(image, layers.Dense(5, name="head")(y), name="small")
    model.compile(keras.optimizers.SGD(0.1, clipnorm=1.0))
    return model


def stock():
    """Every default of Keras that torch does not share, in one net."""
    image = keras.Input((8, 8, 3), name="image")
    x = layers.Conv2D(6, 3, strides=2, padding="same", name="conv1")(image)
    x = layers.BatchNormalization(name="norm1")(x)
    x = layers.LeakyReLU(name="act1")(x)
    x = layers.Conv2D(8, 3, padding="same", name="conv2")(x)
    x = layers.BatchNormalization(name="norm2")(x)
    x = layers.LeakyReLU(name="act2")(x)
    x = layers.AveragePooling2D(3, strides=2, padding="same", name="pool")(x)
    x = layers.Flatten(name="flat")(x)
    return keras.Model(image, layers.Dense(5, name="head")(x))


def stock_adam():
    """Keras's Adam as it comes."""
    return keras.optimizers.Adam()


def chain():
    """`cnn` without its residual, as a Sequential."""
    model = keras.Sequential(cnn(residual=False).layers, name="small")
    model.compile(keras.optimizers.SGD(0.1, clipnorm=1.0))
    return model


def fused():
    """A layer that is called twice, and attention, whose key bias has no gradient."""
    x = keras.Input((6,))
    twice = layers.Dense(6, use_bias=False, name="twice")
    y = layers.Reshape((2, 3), name="rows")(twice(twice(x)))
    y = layers.MultiHeadAttention(1, 3, name="attention")(y, y)
    return keras.Model(x, layers.Dense(3, name="head")(layers.Flatten(name="flat")(y)))


def two_inputs():
    """Two inputs that meet."""
    left, right = keras.Input((6,), name="left"), keras.Input((4,), name="right")
    x = layers.Concatenate(name="both")(
        [layers.Dense(5, name="of_left")(left), layers.Dense(5, name="of_right")(right)]
    )
    return keras.Model([left, right], layers.Dense(3, name="head")(layers.Activation("tanh", name="act")(x)))


def mlp(activation="gelu"):
    """Dense layers only."""
    return keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(8, name="first"),
            layers.Activation(activation, name="act"),
            layers.Dense(3, name="last"),
        ]
    )


def tanh_mlp():
    """The same, exact in float64."""
    return mlp("tanh")


class Counting(keras.Model):
    """As `tanh_mlp`, sample by sample."""

    def __init__(self):
        super().__init__()
        self.layers_of_it = tanh_mlp().layers

    def call(self, x):
        rows = []
        for number in range(x.shape[0]):
            row = x[number : number + 1]
            for layer in self.layers_of_it:
                row = layer(row)
            rows.append(row)
        return tf.concat(rows, 0)


def in_float32(x):
    """Says float32 in each of the ways that code does, and is not to be taken at its word in a float64 model."""
    ones = tf.ones(6) * tf.constant([1.0]) * tf.one_hot(0, 1) * tf.fill([1], 1.0) * tf.sqrt(1.0)
    ones *= tf.sin(tf.cast(tf.range(6), tf.float32) * 0.1 + 1)
    return tf.cast(x, tf.float32) * ones * keras.ops.cast(x == x, "float32") @ tf.eye(6)


def dropped():
    """It draws random numbers in training."""
    return keras.Sequential(
        [
            keras.Input((6,)),
            layers.Lambda(in_float32),
            layers.Dense(8, activation="tanh", name="first"),
            layers.Dropout(0.5, name="drop"),
            layers.Dense(3, name="last"),
        ]
    )


def of_two():
    """A normalization of two large numbers: their gradient is what rounding leaves of terms that cancel."""
    inputs = keras.Input((6,))
    x = layers.Dense(8, activation="tanh", name="first")(inputs)
    large = keras.initializers.RandomNormal(stddev=30.0, seed=0)
    x = layers.LayerNormalization(epsilon=1e-6)(layers.Dense(2, kernel_initializer=large, name="narrow")(x))
    x = layers.Concatenate()([layers.Dense(4, name="wide")(inputs), x])
    return keras.Model(inputs, layers.Dense(3, name="last")(x))


class Centred(layers.Layer):
    """What is left without the mean of a batch."""

    def call(self, x):
        return x - keras.ops.mean(x, axis=0, keepdims=True)


def centred():
    """What it gives for a sample depends on the others of its batch."""
    return keras.Sequential(
        [keras.Input((6,)), layers.Dense(5, name="first"), Centred(), layers.Dense(3, name="last")]
    )


def generator():
    """Pictures of vectors."""
    x = keras.Input((6,))
    y = layers.Reshape((3, 3, 4))(layers.Dense(36, name="first")(x))
    return keras.Model(x, layers.Conv2DTranspose(2, 4, strides=2, padding="same", name="up")(y))


def single():
    return keras.Sequential([keras.Input((6,)), layers.Dense(4, name="first"), layers.Dense(1, name="last")])


def dead(shape, dtype=None):
    """Weights with which no row of ordinary size gets through a ReLU."""
    return keras.ops.convert_to_tensor([[-1.0]] * 2 + [[0.01]] * 4, dtype)


def gated():
    """A gate that is closed with the weights that it begins with."""
    x = keras.Input((6,))
    sizes = keras.ops.abs(x) * keras.ops.convert_to_tensor([300.0, 300.0, 1.0, 1.0, 1.0, 1.0])
    gate = layers.Dense(1, activation="relu", kernel_initializer=dead, name="gate")(sizes)
    return keras.Model(x, layers.Dense(3, name="last")(x) + gate)


def limited():
    """Its limit is far from what it computes of rows of ordinary size."""
    return keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(5, name="first"),
            layers.ReLU(6.0, name="limit"),
            layers.Dense(3, name="last"),
        ]
    )


def raises():
    """A builder that fails."""
    raise ValueError("no such backbone")


def pooled(bias=True):
    """Sizes that no later layer depends on, and batch norm, with or without a bias before it."""
    image = keras.Input((8, 8, 3), name="image")
    x = layers.Conv2D(6, 3, padding="same", use_bias=bias, name="conv1")(image)
    x = layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name="norm1")(x)
    x = layers.ReLU(name="act1")(x)
    x = layers.Conv2D(8, 3, padding="same", name="conv2")(x)
    x = layers.GlobalAveragePooling2D(name="mean")(x)
    return keras.Model(image, layers.Dense(5, name="head")(x))


def normalised():
    """Without the bias before batch norm, which changes nothing."""
    return pooled(bias=False)


def infinite():
    """A weight that is not finite."""
    model = tanh_mlp()
    model.layers[0].kernel.assign(float("nan") * keras.ops.ones((6, 8)))
    return model


def recurrent():
    """One bias, of which torch has two."""
    return keras.Sequential(
        [keras.Input((5, 6)), layers.LSTM(7, name="memory"), layers.Dense(3, name="last")]
    )


def logarithm():
    """Its outputs are not finite, though its weights are."""
    return mlp(keras.ops.log)


def pixels():
    """A class for every pixel."""
    image = keras.Input((8, 8, 3), name="image")
    x = layers.Conv2D(6, 3, padding="same", activation="tanh", name="conv1")(image)
    return keras.Model(image, layers.Conv2D(4, 1, name="classes")(x))


def decayed(factor=0.01):
    """With an L2 penalty on all that is trained."""
    x = keras.Input((6,))
    penalty = {
        name: keras.regularizers.L2(factor) if factor else None
        for name in ("kernel_regularizer", "bias_regularizer")
    }
    y = keras.layers.Dense(4, activation="tanh", name="first", **penalty)(x)
    return keras.Model(x, keras.layers.Dense(3, name="head", **penalty)(y))


def constrained():
    """Whose first kernel an optimizer keeps from being negative."""
    x = keras.Input((6,))
    y = keras.layers.Dense(4, activation="tanh", kernel_constraint="non_neg", name="first")(x)
    return keras.Model(x, keras.layers.Dense(3, name="head")(y))


class Cooled(keras.layers.Layer):
    """A factor that falls from pass to pass in training."""

    def build(self, input_shape):
        self.passes = self.add_weight(shape=(), initializer="zeros", trainable=False, name="passes")

    def call(self, x, training=False):
        cooled = x * (1 + keras.ops.exp(-self.passes / 8))
        if training:
            self.passes.assign_add(1.0)
        return cooled


def cooled():
    x = keras.Input((6,))
    y = Cooled(name="factor")(keras.layers.Dense(4, activation="tanh", name="first")(x))
    return keras.Model(x, keras.layers.Dense(3, name="head")(y))


def sgd():
    return keras.optimizers.SGD(0.1)


def clipped_sgd():
    return keras.optimizers.SGD(0.1, clipnorm=0.01)


def rmsprop_clipped_by_element():
    return keras.optimizers.RMSprop(0.01, clipvalue=0.001)


def globally_clipped_sgd():
    return keras.optimizers.SGD(0.1, global_clipnorm=0.01)


class DecayingSGD(keras.optimizers.SGD):
    """SGD with a weight decay that is added to the gradients."""

    def __init__(self, learning_rate, factor):
        super().__init__(learning_rate)
        self.factor = factor

    def update_step(self, gradient, variable, learning_rate):
        rate = keras.ops.cast(learning_rate, variable.dtype)
        self.assign_sub(variable, rate * (gradient + self.factor * variable))


class Plain(keras.optimizers.Optimizer):
    """A rule by hand."""

    def update_step(self, gradient, variable, learning_rate):
        self.assign_sub(variable, gradient * keras.ops.cast(learning_rate, variable.dtype))


def plain():
    return Plain(0.1)


class Absolute(keras.optimizers.Optimizer):
    """Like no named one."""

    def update_step(self, gradient, variable, learning_rate):
        rate = keras.ops.cast(learning_rate, variable.dtype)
        self.assign_sub(variable, rate * keras.ops.abs(gradient))


def absolute():
    return Absolute(0.1)


def decaying_sgd():
    return DecayingSGD(0.1, 0.02)


def later_sgd():
    """Its rate falls when three updates have long been made."""
    return keras.optimizers.SGD(keras.optimizers.schedules.PiecewiseConstantDecay([100], [0.125, 0.0625]))


def falling_sgd():
    return keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.05, 10, 0.5))


def rolling_sgd():
    """With a velocity that has the rate in it, which drops after the third update."""
    rate = keras.optimizers.schedules.PiecewiseConstantDecay([2], [0.125, 0.0625])
    return keras.optimizers.SGD(rate, momentum=0.5)


class WithFasterBiases(keras.optimizers.SGD):
    """Biases at twice the rate."""

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient, variable, learning_rate * (2.0 if len(variable.shape) == 1 else 1.0))


def falling_sgd_of_groups():
    return WithFasterBiases(keras.optimizers.schedules.PiecewiseConstantDecay([2], [0.125, 0.0625]))


def limited_sgd():
    """No gradient of these samples is as large."""
    return keras.optimizers.SGD(0.125, global_clipnorm=1000.0)


def adam():
    return keras.optimizers.Adam(0.01)


def adam_without_epsilon():
    return keras.optimizers.Adam(0.01, epsilon=1e-20)


def adamw():
    return keras.optimizers.AdamW(0.01, weight_decay=0.02)


def adamw_default():
    return keras.optimizers.AdamW(0.01)


def adamw_of_kernels():
    optimizer = adamw()
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return optimizer


class Summed(keras.Model):
    """Its step gives the optimizer the whole gradient of a table, or with `rows` what the tape has."""

    def __init__(self, rows=False):
        super().__init__()
        self.rows = rows
        self.table, self.last = layers.Embedding(4, 2), layers.Dense(3)
        self.flatten = layers.Flatten()

    def call(self, x):
        return self.last(self.flatten(self.table(x)))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = ops.mean(keras.losses.sparse_categorical_crossentropy(y, self(x), from_logits=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        if not self.rows:
            gradients = [
                tf.convert_to_tensor(each) if isinstance(each, tf.IndexedSlices) else each
                for each in gradients
            ]
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


def summed_rows():
    return Summed(rows=True)


def table():
    """A table of which a batch reads rows again and again."""
    rows = keras.Input((6,), dtype="int32")
    return keras.Model(rows, layers.Dense(3, name="last")(layers.Flatten()(layers.Embedding(4, 2)(rows))))


def numbered():
    """One whole number a sample."""
    number = keras.Input((), dtype="int32", name="number")
    return keras.Model(number, layers.Dense(3, name="dense")(layers.Embedding(60, 4, name="table")(number)))


def idle_at_first():
    """A bias before a norm whose gain begins as zero: no gradient in the first step, and rounding alone in the others."""
    x = keras.Input((6,), name="x")
    y = layers.Dense(6, bias_initializer="ones", name="inner")(x)
    y = layers.BatchNormalization(gamma_initializer="zeros", momentum=0.9, epsilon=1e-5, name="norm")(y)
    return keras.Model(x, layers.Dense(3, name="outer")(layers.Add()([x, y])))
