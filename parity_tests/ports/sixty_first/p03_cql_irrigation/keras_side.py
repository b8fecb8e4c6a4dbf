import keras
import tensorflow as tf
from keras import layers

NUM_VALVE_SETTINGS = 5
DISCOUNT = 0.97
POLYAK = 0.05
CONSERVATISM = 0.4


def q_network(name):
    obs = keras.Input((8,))
    x = layers.Dense(32, activation="silu", name="hidden_1")(obs)
    x = layers.LayerNormalization(epsilon=1e-5, name="hidden_norm")(x)
    skip = x
    x = layers.Dense(32, activation="silu", name="hidden_2")(x)
    x = layers.Concatenate(name="wide")([x, skip])
    q = layers.Dense(NUM_VALVE_SETTINGS, name="values")(x)
    return keras.Model(obs, q, name=name)


class ConservativeQ(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.online = q_network("online")
        self.frozen = q_network("frozen")
        self.frozen.set_weights(self.online.get_weights())
        self.frozen.trainable = False
        self.loss_tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.loss_tracker]

    def call(self, inputs, training=False):
        obs = inputs["obs"] if isinstance(inputs, dict) else inputs
        return self.online(obs, training=training)

    def train_step(self, data):
        x, y = data
        for slow, fast in zip(self.frozen.weights, self.online.weights):
            slow.assign((1.0 - POLYAK) * slow + POLYAK * fast)

        best = tf.argmax(self.online(x["next_obs"]), axis=-1)
        ahead = tf.gather(self.frozen(x["next_obs"]), best, axis=1, batch_dims=1)
        reward = tf.cast(y["reward"], ahead.dtype)
        alive = 1.0 - tf.cast(y["terminal"], ahead.dtype)
        target = tf.stop_gradient(reward + DISCOUNT * alive * ahead)

        with tf.GradientTape() as tape:
            q = self.online(x["obs"], training=True)
            taken = tf.gather(q, y["action"], axis=1, batch_dims=1)
            err = tf.abs(target - taken)
            td = tf.where(err < 1.0, 0.5 * tf.square(err), err - 0.5)
            gap = tf.reduce_logsumexp(q, axis=-1) - taken
            loss = tf.reduce_mean(td + CONSERVATISM * gap)
        variables = self.online.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}


def build():
    return ConservativeQ(name="conservative_q")
