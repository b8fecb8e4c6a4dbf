"""Self-distillation (DINO) of plankton pictures with a tiny vision transformer, two global and two local crops, and a
linear probe that is trained alongside on the classes."""

import keras
import tensorflow as tf
from keras import layers, ops

DIM, HEADS, DEPTH, PATCH = 32, 4, 2, 4
PROTOTYPES = 48
CLASSES = 5
STUDENT_TEMPERATURE, TEACHER_TEMPERATURE = 0.1, 0.05
TEACHER_MOMENTUM, CENTRE_MOMENTUM = 0.98, 0.9
VIEWS = ("global1", "global2", "local1", "local2")


class Block(layers.Layer):
    def __init__(self, dim, heads, **kwargs):
        super().__init__(**kwargs)
        self.dim, self.heads = dim, heads
        self.norm1 = layers.LayerNormalization(epsilon=1e-6, name="norm1")
        self.qkv = layers.Dense(3 * dim, name="qkv")
        self.proj = layers.Dense(dim, name="proj")
        self.norm2 = layers.LayerNormalization(epsilon=1e-6, name="norm2")
        self.fc1 = layers.Dense(2 * dim, activation="silu", name="fc1")
        self.fc2 = layers.Dense(dim, name="fc2")

    def build(self, shape):
        for layer in (self.norm1, self.qkv, self.proj, self.norm2, self.fc1):
            layer.build(shape)
        self.fc2.build((*shape[:-1], 2 * self.dim))
        self.built = True

    def attend(self, x):
        n = x.shape[1]
        qkv = ops.reshape(self.qkv(x), (-1, n, 3, self.heads, self.dim // self.heads))
        q, k, v = ops.unstack(qkv, axis=2)
        scores = ops.einsum("bqhd,bkhd->bhqk", q, k) * (self.dim // self.heads) ** -0.5
        return self.proj(
            ops.reshape(ops.einsum("bhqk,bkhd->bqhd", ops.softmax(scores), v), (-1, n, self.dim))
        )

    def call(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.fc2(self.fc1(self.norm2(x)))


class Backbone(layers.Layer):
    """A transformer of patches; the positions are pooled to the grid of the local crops."""

    def __init__(self, grid, **kwargs):
        super().__init__(**kwargs)
        self.grid = grid
        self.patches = layers.Conv2D(DIM, PATCH, strides=PATCH, name="patches")
        self.blocks = [Block(DIM, HEADS, name=f"block{i}") for i in range(DEPTH)]
        self.norm = layers.LayerNormalization(epsilon=1e-6, name="norm")

    def build(self, shape):
        normal = keras.initializers.RandomNormal(stddev=0.02)
        self.token = self.add_weight(name="token", shape=(1, 1, DIM), initializer=normal)
        self.token_position = self.add_weight(name="token_position", shape=(1, 1, DIM), initializer=normal)
        self.positions = self.add_weight(
            name="positions", shape=(1, self.grid, self.grid, DIM), initializer=normal
        )
        self.patches.build(shape)
        for block in self.blocks:
            block.build((None, None, DIM))
        self.norm.build((None, None, DIM))
        self.built = True

    def call(self, x):
        x = self.patches(x)
        side = x.shape[1]
        positions = self.positions
        if side != self.grid:
            positions = ops.average_pool(positions, self.grid // side, data_format="channels_last")
        x = ops.reshape(x + positions, (-1, side * side, DIM))
        token = ops.broadcast_to(self.token + self.token_position, (ops.shape(x)[0], 1, DIM))
        x = ops.concatenate([token, x], axis=1)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)[:, 0]


class Projector(layers.Layer):
    """Three dense layers, a bottleneck of unit length, prototypes of unit length."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.hidden1 = layers.Dense(64, activation="silu", name="hidden1")
        self.hidden2 = layers.Dense(64, activation="silu", name="hidden2")
        self.bottleneck = layers.Dense(16, name="bottleneck")

    def build(self, shape):
        self.hidden1.build(shape)
        self.hidden2.build((None, 64))
        self.bottleneck.build((None, 64))
        self.prototypes = self.add_weight(
            name="prototypes", shape=(16, PROTOTYPES), initializer="glorot_normal"
        )
        self.built = True

    def call(self, x):
        x = ops.normalize(self.bottleneck(self.hidden2(self.hidden1(x))), axis=-1, order=2)
        return ops.matmul(x, ops.normalize(self.prototypes, axis=0, order=2))


class Network(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.backbone = Backbone(6, name="backbone")
        self.projector = Projector(name="projector")

    def call(self, x):
        return self.projector(self.backbone(x))


class DINO(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.student = Network(name="student")
        self.teacher = Network(name="teacher")
        self.probe = layers.Dense(CLASSES, name="probe")
        blank = ops.zeros((1, 24, 24, 1))
        self.student(blank)
        self.teacher(blank)
        self.probe.build((None, DIM))
        self.teacher.set_weights(self.student.get_weights())
        self.teacher.trainable = False
        self.centre = self.add_weight(
            name="centre", shape=(PROTOTYPES,), initializer="zeros", trainable=False
        )
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self.built = True

    @property
    def metrics(self):
        return [self.loss_tracker]

    @staticmethod
    def views(inputs):
        return [inputs[name] for name in VIEWS] if isinstance(inputs, dict) else list(inputs)

    def call(self, inputs, training=None):
        """The probe's logits of the first crop."""
        return self.probe(ops.stop_gradient(self.student.backbone(self.views(inputs)[0])))

    def train_step(self, data):
        inputs, labels = data[0], data[1]
        views = self.views(inputs)
        for slow, fast in zip(self.teacher.weights, self.student.weights):
            slow.assign(TEACHER_MOMENTUM * slow + (1.0 - TEACHER_MOMENTUM) * fast)

        raw = [self.teacher(view) for view in views[:2]]
        targets = [ops.stop_gradient(ops.softmax((t - self.centre) / TEACHER_TEMPERATURE)) for t in raw]
        with tf.GradientTape() as tape:
            predictions = [ops.log_softmax(self.student(view) / STUDENT_TEMPERATURE) for view in views]
            terms = [
                -ops.mean(ops.sum(target * prediction, axis=-1))
                for i, target in enumerate(targets)
                for j, prediction in enumerate(predictions)
                if i != j
            ]
            probe = keras.losses.sparse_categorical_crossentropy(
                labels, self(inputs, training=True), from_logits=True
            )
            loss = sum(terms) / len(terms) + ops.mean(probe)
        self.centre.assign(
            CENTRE_MOMENTUM * self.centre + (1.0 - CENTRE_MOMENTUM) * ops.mean(ops.concatenate(raw), axis=0)
        )
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}


def build():
    return DINO(name="dino")
