"""Deep Galerkin network for a drifting, decaying plume in a tank of 4 m by 2 m.

c_t + v . grad c - div(D grad c) + k c = 0,  c(0, .) = c0,  n . (D grad c) = 0 at the walls.
Points are rows of (t, x, y).
"""

import keras
import numpy as np
import tensorflow as tf

LOW = np.array([0.0, 0.0, 0.0], np.float32)
SPAN = np.array([3.0, 4.0, 2.0], np.float32)
VELOCITY = (0.45, 0.1)
DIFFUSION = ((0.08, 0.02), (0.02, 0.05))
DECAY = 0.12
WEIGHTS = {"pde": 1.0, "start": 20.0, "wall": 4.0}


class DGMCell(keras.layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, s_shape, p_shape):
        d = p_shape[-1]
        for gate in ("z", "g", "r", "h"):
            setattr(self, f"u_{gate}", self.add_weight(shape=(d, self.units), name=f"u_{gate}"))
            setattr(self, f"w_{gate}", self.add_weight(shape=(self.units, self.units), name=f"w_{gate}"))
            setattr(
                self, f"b_{gate}", self.add_weight(shape=(self.units,), initializer="zeros", name=f"b_{gate}")
            )

    def call(self, s, p):
        z = tf.tanh(p @ self.u_z + s @ self.w_z + self.b_z)
        g = tf.tanh(p @ self.u_g + s @ self.w_g + self.b_g)
        r = tf.tanh(p @ self.u_r + s @ self.w_r + self.b_r)
        h = tf.tanh(p @ self.u_h + (s * r) @ self.w_h + self.b_h)
        return (1 - g) * h + z * s


class Plume(keras.Model):
    def __init__(self, units=24, cells=3):
        super().__init__(name="plume")
        self.first = keras.layers.Dense(units, activation="tanh", name="first")
        self.cells = [DGMCell(units, name=f"cell_{i}") for i in range(cells)]
        self.last = keras.layers.Dense(1, name="last")

    def concentration(self, points):
        p = 2.0 * (points - LOW) / SPAN - 1.0
        s = self.first(p)
        for cell in self.cells:
            s = cell(s, p)
        return self.last(s)

    def call(self, inputs):
        return self.concentration(inputs["initial"])

    def residual(self, points):
        with tf.GradientTape(persistent=True) as second:
            second.watch(points)
            with tf.GradientTape() as first:
                first.watch(points)
                c = self.concentration(points)
            slope = first.gradient(c, points)
            c_x, c_y = slope[:, 1], slope[:, 2]
        along_x = second.gradient(c_x, points)
        along_y = second.gradient(c_y, points)
        del second
        (d_xx, d_xy), (d_yx, d_yy) = DIFFUSION
        spread = d_xx * along_x[:, 1] + d_xy * along_x[:, 2] + d_yx * along_y[:, 1] + d_yy * along_y[:, 2]
        drift = VELOCITY[0] * c_x + VELOCITY[1] * c_y
        return slope[:, 0] + drift - spread + DECAY * c[:, 0]

    def wall_flux(self, points, normal):
        with tf.GradientTape() as tape:
            tape.watch(points)
            c = self.concentration(points)
        slope = tape.gradient(c, points)[:, 1:]
        flux = slope @ tf.constant(DIFFUSION, slope.dtype)
        return tf.reduce_sum(flux * normal, axis=1)

    def train_step(self, data):
        x, c0, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            pde = tf.reduce_mean(tf.square(self.residual(x["interior"])))
            start = tf.reduce_mean(tf.square(self(x, training=True) - c0))
            wall = tf.reduce_mean(tf.square(self.wall_flux(x["wall"], x["normal"])))
            loss = WEIGHTS["pde"] * pde + WEIGHTS["start"] * start + WEIGHTS["wall"] * wall
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return {"loss": loss, "pde": pde, "start": start, "wall": wall}


def build():
    model = Plume()
    model({"initial": np.zeros((1, 3), np.float32)})
    return model
