"""An energy of backbone torsion angles, learnt by denoising score matching."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

LENGTH, RESIDUES, WIDTH, BLOCKS = 12, 21, 32, 2
HARMONICS = np.array([1.0, 2.0, 3.0], np.float32)
RIDGE = 1e-3


@keras.saving.register_keras_serializable("torsion")
class TorsionHarmonics(layers.Layer):
    def call(self, angles):
        phases = ops.expand_dims(angles, -1) * ops.cast(HARMONICS, angles.dtype)
        waves = ops.concatenate([ops.sin(phases), ops.cos(phases)], axis=-1)
        return ops.reshape(waves, (-1, LENGTH, 4 * len(HARMONICS)))


@keras.saving.register_keras_serializable("torsion")
class GatedResidueBlock(layers.Layer):
    """A pre-norm convolution along the chain whose shift and scale come from the noise level."""

    def __init__(self, width, dilation, **kwargs):
        super().__init__(**kwargs)
        self.width, self.dilation = width, dilation
        self.norm = layers.RMSNormalization(epsilon=1e-5)
        self.modulation = layers.Dense(
            2 * width, kernel_initializer=keras.initializers.RandomNormal(stddev=0.1)
        )
        self.conv = layers.Conv1D(2 * width, 3, padding="same", dilation_rate=dilation)
        self.out = layers.Dense(width)

    def build(self, shapes):
        chain, level, _ = shapes
        self.norm.build(chain)
        self.modulation.build(level)
        self.conv.build(chain)
        self.out.build(chain)

    def compute_output_shape(self, shapes):
        return shapes[0]

    def call(self, inputs):
        x, level, mask = inputs
        scale, shift = ops.split(ops.expand_dims(self.modulation(level), 1), 2, axis=-1)
        h = (self.norm(x) * (1 + scale) + shift) * mask
        value, gate = ops.split(self.conv(h), 2, axis=-1)
        return x + self.out(ops.tanh(value) * ops.sigmoid(gate)) * mask


@keras.saving.register_keras_serializable("torsion")
class TorsionEnergy(keras.Model):
    def train_step(self, data):
        inputs, noise, _ = keras.utils.unpack_x_y_sample_weight(data)
        if not isinstance(inputs, dict):
            inputs = dict(zip(("angles", "residues", "sigma"), inputs))
        sigma = inputs["sigma"][:, None]
        mask = tf.cast(inputs["residues"] > 0, sigma.dtype)[..., None]
        noisy = inputs["angles"] + sigma * noise
        with tf.GradientTape() as tape:
            with tf.GradientTape() as inner:
                inner.watch(noisy)
                energy = self({**inputs, "angles": noisy}, training=True)
            score = -inner.gradient(energy, noisy)
            error = tf.reduce_sum(mask * tf.square(sigma * score + noise), axis=(1, 2))
            count = 2 * tf.reduce_sum(mask, axis=(1, 2))
            loss = 0.5 * tf.reduce_mean(error / count) + RIDGE * tf.reduce_mean(tf.square(energy))
        gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, self.trainable_variables)]
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


def build():
    angles = keras.Input((LENGTH, 2), name="angles")
    residues = keras.Input((LENGTH,), dtype="int32", name="residues")
    sigma = keras.Input((1,), name="sigma")
    mask = ops.expand_dims(ops.cast(residues > 0, sigma.dtype), -1)
    level = ops.log(sigma) / 4
    level = layers.Dense(WIDTH, activation="silu", name="level1")(level)
    level = layers.Dense(WIDTH, activation="silu", name="level2")(level)
    x = layers.Dense(WIDTH, name="torsions")(TorsionHarmonics()(angles))
    x = (x + layers.Embedding(RESIDUES, WIDTH, name="residue")(residues)) * mask
    for i in range(BLOCKS):
        x = GatedResidueBlock(WIDTH, 2**i, name=f"block{i}")([x, level, mask])
    x = layers.RMSNormalization(epsilon=1e-5, name="last_norm")(x)
    local = layers.Dense(1, name="local")(layers.Dense(WIDTH, activation="softplus", name="last")(x))
    energy = ops.sum(local * mask, axis=(1, 2)) / ops.squeeze(sigma, -1)
    inputs = {"angles": angles, "residues": residues, "sigma": sigma}
    return TorsionEnergy(inputs, ops.expand_dims(energy, -1))
