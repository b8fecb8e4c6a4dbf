"""Wake-word student: 4-bit weights and activations, trained with the teacher's logits.

y holds the word (column 0) and the logits of the teacher (the others).
"""

import keras
import tensorflow as tf

WORDS = 4
BITS = 4
TEMPERATURE, HARD = 3.0, 0.3
RANGE_DECAY = 0.9


def straight_through(x, q):
    return x + tf.stop_gradient(q - x)


def quantise_weight(w, limit):
    n = 2.0 ** (BITS - 1) - 1.0
    c = tf.clip_by_value(w, -limit, limit)
    return straight_through(w, tf.round(c * (n / limit)) * (limit / n))


class QConv(keras.layers.Layer):
    def __init__(self, filters, width, stride=1, limit=0.12, **kw):
        super().__init__(**kw)
        self.filters, self.width, self.stride, self.limit = filters, width, stride, limit

    def build(self, shape):
        self.kernel = self.add_weight(
            name="kernel", shape=(self.width, shape[-1], self.filters), initializer="glorot_uniform"
        )

    def call(self, x):
        return tf.nn.conv1d(
            x, quantise_weight(tf.convert_to_tensor(self.kernel), self.limit), self.stride, "SAME"
        )


class QRelu(keras.layers.Layer):
    """Clips to [0, range], 15 steps; the range follows the largest activation of the batches."""

    def build(self, shape):
        self.range = self.add_weight(
            name="range", shape=(), initializer=keras.initializers.Constant(1.5), trainable=False
        )

    def call(self, x, training=None):
        r = tf.convert_to_tensor(self.range)
        n = 2.0**BITS - 1.0
        c = tf.clip_by_value(x, 0.0, r)
        out = straight_through(c, tf.round(c / r * n) / n * r)
        if training:
            self.range.assign(RANGE_DECAY * r + (1.0 - RANGE_DECAY) * tf.reduce_max(x))
        return out


class Student(keras.Model):
    def __init__(self, **kw):
        super().__init__(**kw)
        norm = lambda i: keras.layers.BatchNormalization(momentum=0.95, name=f"norm_{i}")
        self.convs = [
            QConv(16, 5, 2, name="conv_0"),
            QConv(16, 3, name="conv_1"),
            QConv(24, 3, 2, name="conv_2"),
        ]
        self.norms = [norm(i) for i in range(3)]
        self.acts = [QRelu(name=f"act_{i}") for i in range(3)]
        self.pool = keras.layers.GlobalAveragePooling1D()
        self.words = keras.layers.Dense(WORDS, name="words")

    def call(self, mel, training=None):
        x = mel
        for i, (conv, norm, act) in enumerate(zip(self.convs, self.norms, self.acts)):
            y = norm(conv(x), training=training)
            x = act(y + x if i == 1 else y, training=training)
        return self.words(self.pool(x))

    def distil(self, y, logits):
        label, teacher = tf.cast(y[:, 0], tf.int32), tf.cast(y[:, 1:], logits.dtype)
        hard = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits)
        p = tf.nn.softmax(teacher / TEMPERATURE)
        kl = tf.reduce_sum(p * (tf.math.log(p) - tf.nn.log_softmax(logits / TEMPERATURE)), axis=-1)
        return tf.reduce_mean(HARD * hard + (1.0 - HARD) * TEMPERATURE**2 * kl)

    def train_step(self, data):
        mel, y = data[0], data[1]
        with tf.GradientTape() as tape:
            logits = self(mel, training=True)
            loss = self.distil(y, logits)
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        right = tf.equal(tf.argmax(logits, -1, output_type=tf.int32), tf.cast(y[:, 0], tf.int32))
        return {"loss": loss, "accuracy": tf.reduce_mean(tf.cast(right, tf.float32))}


def build():
    model = Student(name="wake_word")
    model(tf.zeros((2, 40, 16)))
    return model
