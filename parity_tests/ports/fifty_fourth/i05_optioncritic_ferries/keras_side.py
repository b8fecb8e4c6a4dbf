"""Option-critic for the dispatch of harbour ferries; trained on logged transitions."""

import keras
import numpy as np
import tensorflow as tf

OPTIONS, ACTIONS, OBS = 4, 5, 10
GAMMA, EPSILON = 0.97, 0.1
ENTROPY, MARGIN = 0.02, 0.01


class OptionCritic(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.body1 = keras.layers.Dense(32, activation="swish", name="body1")
        self.norm = keras.layers.LayerNormalization(epsilon=1e-5, name="norm")
        self.body2 = keras.layers.Dense(32, activation="tanh", name="body2")
        self.values = keras.layers.Dense(OPTIONS, name="values")
        self.stops = keras.layers.Dense(OPTIONS, name="stops")
        self.policies = keras.layers.EinsumDense(
            "bi,ioa->boa", output_shape=(OPTIONS, ACTIONS), bias_axes="oa", name="policies"
        )

    def heads(self, obs):
        h = self.body2(self.norm(self.body1(obs)))
        return self.values(h), self.stops(h), self.policies(h)

    def call(self, x):
        return self.heads(x["obs"])

    def option_value(self, q):
        """Value of choosing anew, epsilon-greedily."""
        return (1.0 - EPSILON) * tf.reduce_max(q, axis=-1) + EPSILON * tf.reduce_mean(q, axis=-1)

    def objective(self, x, reward):
        option = tf.one_hot(x["option"], OPTIONS, dtype=reward.dtype)
        action = tf.one_hot(x["action"], ACTIONS, dtype=reward.dtype)
        going = 1.0 - x["done"]
        pick = lambda table: tf.reduce_sum(table * option, axis=-1)

        q, _, logits = self.heads(x["obs"])
        q_next, stop_next, _ = self.heads(x["next_obs"])
        q_next = tf.stop_gradient(q_next)
        stop = tf.sigmoid(pick(stop_next))
        fixed_stop = tf.stop_gradient(stop)

        onward = (1.0 - fixed_stop) * pick(q_next) + fixed_stop * self.option_value(q_next)
        goal = reward + GAMMA**2 * going * onward
        advantage = goal - pick(q)
        critic = 0.5 * tf.square(advantage)

        log_p = tf.nn.log_softmax(tf.reduce_sum(logits * option[:, :, None], axis=1))
        entropy = -tf.reduce_sum(tf.exp(log_p) * log_p, axis=-1)
        actor = -tf.stop_gradient(advantage) * tf.reduce_sum(log_p * action, axis=-1) - ENTROPY * entropy

        worth = pick(q_next) - self.option_value(q_next) + MARGIN
        ending = going * stop * worth
        return tf.reduce_mean(critic + actor + ending)

    def train_step(self, data):
        x, reward = data
        with tf.GradientTape() as tape:
            loss = self.objective(x, reward)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


def build():
    model = OptionCritic(name="ferries")
    model({"obs": np.zeros((1, OBS), "float32")})
    return model
