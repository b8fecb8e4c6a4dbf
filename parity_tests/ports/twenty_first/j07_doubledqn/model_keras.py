import keras
import tensorflow as tf
from keras import layers, ops

GAMMA, TAU, ACTIONS = 0.97, 0.05, 4


def q_network():
    obs = keras.Input((6,))
    h = layers.Dense(32, activation="relu")(obs)
    h = layers.Dense(32, activation="relu")(h)
    value = layers.Dense(1)(h)
    adv = layers.Dense(ACTIONS)(h)
    return keras.Model(obs, value + adv - ops.mean(adv, axis=1, keepdims=True))


class DoubleDQN(keras.Model):
    def __init__(self):
        super().__init__()
        self.online = q_network()
        self.frozen = q_network()
        self.frozen.set_weights(self.online.get_weights())
        self.frozen.trainable = False

    def call(self, inputs):
        taken = ops.one_hot(inputs["action"], ACTIONS, dtype=self.compute_dtype)
        q = ops.sum(self.online(inputs["obs"]) * taken, axis=1)
        best = ops.argmax(self.online(inputs["next_obs"]), axis=1)
        best = ops.one_hot(best, ACTIONS, dtype=self.compute_dtype)
        ahead = ops.sum(self.frozen(inputs["next_obs"]) * best, axis=1)
        return q, ahead * (1.0 - inputs["done"])

    def train_step(self, data):
        x, reward, _ = keras.utils.unpack_x_y_sample_weight(data)
        for slow, fast in zip(self.frozen.variables, self.online.variables):
            slow.assign((1.0 - TAU) * slow + TAU * fast)
        with tf.GradientTape() as tape:
            q, ahead = self(x, training=True)
            miss = ops.abs(ops.stop_gradient(reward + GAMMA * ahead) - q)
            loss = ops.mean(ops.where(miss < 1.0, 0.5 * miss * miss, miss - 0.5))
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(grads, self.trainable_variables)
        return {"loss": loss}


def build():
    return DoubleDQN()
