"""Keras models with a train_step of their own."""

import keras
import tensorflow as tf
from keras import layers, ops


class Autoencoder(keras.Model):
    """A variational autoencoder whose latent numbers are the means: two losses, and no targets."""

    def __init__(self):
        super().__init__()
        self.hidden = layers.Dense(8, activation="tanh")
        self.mean, self.log_variance = layers.Dense(3), layers.Dense(3)
        self.decoder = keras.Sequential([layers.Dense(8, activation="tanh"), layers.Dense(6)])
        self.total = keras.metrics.Mean(name="loss")

    def call(self, x):
        return self.decoder(self.mean(self.hidden(x)))

    def train_step(self, x):
        with tf.GradientTape() as tape:
            h = self.hidden(x)
            mean, log_variance = self.mean(h), self.log_variance(h)
            squares = ops.sum(ops.square(self.decoder(mean) - x), axis=1)
            divergence = -0.5 * ops.sum(1 + log_variance - ops.square(mean) - ops.exp(log_variance), axis=1)
            loss = ops.mean(squares + 0.1 * divergence)
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        self.total.update_state(loss)
        return {"loss": self.total.result()}


class Clipped(Autoencoder):
    """Its update is by other gradients."""

    def train_step(self, x):
        with tf.GradientTape() as tape:
            loss = ops.mean(ops.square(self(x) - x)) + ops.mean(ops.square(self.log_variance(self.hidden(x))))
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, self.trainable_weights), 0.1)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        return {"loss": loss}


class Twice(Autoencoder):
    """Two updates."""

    def train_step(self, x):
        super().train_step(x)
        return super().train_step(x)


class Sampling(Autoencoder):
    """It draws."""

    def train_step(self, x):
        return super().train_step(x + keras.random.normal(ops.shape(x), dtype="float64"))


class Consistent(keras.Model):
    """A class, and that a disturbed sample has the same; batch norm, sample weights, compiled losses."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = layers.Dense(8), layers.BatchNormalization(), layers.Dense(3)

    def call(self, x, training=False):
        return self.last(ops.tanh(self.norm(self.first(x), training=training)))

    def train_step(self, data):
        x, y, weights = data
        with tf.GradientTape() as tape:
            logits = self(x, training=True)
            loss = self.compute_loss(x=x, y=y, y_pred=logits, sample_weight=weights)
            loss = loss + 0.3 * ops.mean(ops.square(self(1.1 * x, training=True) - logits))
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        return {"loss": loss}


def consistent():
    """As it is fitted."""
    model = Consistent()
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


class Taught(keras.Model):
    """A student learns what a frozen teacher gives in inference."""

    def __init__(self):
        super().__init__()
        self.teacher = keras.Sequential([layers.Dense(8), layers.BatchNormalization()])
        self.teacher.trainable = False
        self.student = layers.Dense(8)

    def call(self, x):
        self.teacher(x)
        return self.student(x)

    def train_step(self, x):
        due = self.teacher(x, training=False)
        with tf.GradientTape() as tape:
            loss = ops.mean(ops.square(self.student(x) - due))
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        return {"loss": loss}


class Gate(layers.Layer):
    """What it gives, and how unevenly its units are used."""

    def __init__(self):
        super().__init__()
        self.units = layers.Dense(5)

    def call(self, x):
        y = ops.tanh(self.units(x))
        return y, ops.var(ops.mean(y, axis=0))


class Balanced(keras.Model):
    """A second pass on samples that are turned round, whose outputs are to be those of the first; and a gate that is to be even."""

    def __init__(self):
        super().__init__()
        self.gate, self.last = Gate(), layers.Dense(3)

    def call(self, x):
        return self.last(self.gate(x)[0])

    def train_step(self, x):
        with tf.GradientTape() as tape:
            y, uneven = self.gate(x)
            first = self.last(y)
            apart = ops.mean(ops.square(self(x[:, ::-1]) - ops.stop_gradient(first)))
            loss = ops.mean(ops.square(first - 1)) + apart + 0.1 * uneven
        weights = self.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


class Sloped(keras.Model):
    """Its loss is made of the slope of what it gives, and of the mean of that."""

    def __init__(self):
        super().__init__()
        self.units, self.last = layers.Dense(5, activation="tanh"), layers.Dense(1)

    def call(self, x):
        return self.last(self.units(x))

    def train_step(self, x):
        with tf.GradientTape() as tape:
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = self(x)
            loss = ops.mean(ops.square(inner.gradient(y, x))) + 0.1 * ops.mean(y)
        weights = self.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


class Followed(keras.Model):
    """Its step moves a target itself, whose weights Keras counts as trained."""

    def __init__(self):
        super().__init__()
        self.online, self.target = layers.Dense(3, activation="tanh"), layers.Dense(3)

    def call(self, x):
        return self.online(x) + 0.0 * self.target(x)

    def train_step(self, x):
        for target, online in zip(self.target.weights, self.online.weights, strict=True):
            target.assign(0.75 * target + 0.25 * online)
        with tf.GradientTape() as tape:
            loss = ops.mean(ops.square(self.online(x) - ops.stop_gradient(self.target(x[:, ::-1]))))
        weights = self.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


class Counted(layers.Layer):
    """Adds a loss of each sample, and compares whole numbers that are int32 as long as floats are float32."""

    def call(self, x):
        width = tf.fill([6], tf.shape(x)[1] - 1)
        kept = ops.cast(ops.arange(6) < width, x.dtype)
        self.add_loss(ops.sum(ops.square(x) * kept, axis=-1))
        return x


def counted():
    """Trained by Keras's own step, by what a layer adds alone."""
    x = keras.Input((6,), name="x")
    model = keras.Model(x, Counted()(layers.Dense(6, name="dense")(x)))
    model.compile(optimizer="sgd")
    return model
