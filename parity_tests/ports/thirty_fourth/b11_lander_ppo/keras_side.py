"""PPO update of an actor-critic for the lunar lander."""

import keras
import tensorflow as tf
from keras import layers, ops

ACTIONS = 4


class ActorCritic(keras.Model):
    def __init__(self, clip=0.2, value_weight=0.5, entropy_weight=0.01, **kwargs):
        super().__init__(**kwargs)
        self.clip, self.value_weight, self.entropy_weight = clip, value_weight, entropy_weight
        self.trunk = keras.Sequential(
            [
                layers.Dense(24, activation="tanh"),
                layers.RMSNormalization(epsilon=1e-6),
                layers.Dense(24, activation="tanh"),
                layers.RMSNormalization(epsilon=1e-6),
            ],
            name="trunk",
        )
        self.actor = layers.Dense(
            ACTIONS, kernel_initializer=keras.initializers.Orthogonal(0.1), name="actor"
        )
        self.critic = layers.Dense(1, name="critic")
        self.tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.tracker]

    def call(self, observation, training=False):
        h = self.trunk(observation, training=training)
        return {"logits": self.actor(h), "value": ops.squeeze(self.critic(h), -1)}

    def train_step(self, data):
        observation, rollout = data  # action, log-probability then, advantage, return
        action = ops.cast(rollout[:, 0], "int32")
        old_log_prob, advantage, returns = rollout[:, 1], rollout[:, 2], rollout[:, 3]
        advantage = (advantage - ops.mean(advantage)) / (ops.std(advantage) + 1e-8)
        with tf.GradientTape() as tape:
            out = self(observation, training=True)
            log_probs = ops.log_softmax(out["logits"], axis=-1)
            chosen = ops.sum(log_probs * ops.one_hot(action, ACTIONS, dtype=log_probs.dtype), axis=-1)
            ratio = ops.exp(chosen - old_log_prob)
            surrogate = ops.minimum(
                ratio * advantage, ops.clip(ratio, 1 - self.clip, 1 + self.clip) * advantage
            )
            entropy = -ops.sum(ops.exp(log_probs) * log_probs, axis=-1)
            value_loss = ops.square(returns - out["value"])
            loss = ops.mean(-surrogate + self.value_weight * value_loss - self.entropy_weight * entropy)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


def make_optimizer():
    rate = keras.optimizers.schedules.PolynomialDecay(0.05, decay_steps=20, end_learning_rate=0.005)
    sgd = keras.optimizers.SGD(rate, clipnorm=0.5, weight_decay=1e-2)
    sgd.exclude_from_weight_decay(var_names=["bias", "scale"])
    return sgd


def build():
    model = ActorCritic()
    model.compile(optimizer=make_optimizer())
    return model
