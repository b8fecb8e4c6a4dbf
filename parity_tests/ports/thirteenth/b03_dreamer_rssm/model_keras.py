"""World model with a recurrent state (RSSM): predicts pictures of features and rewards along a rollout."""

import keras
import tensorflow as tf
from keras import layers, ops


class WorldModel(keras.Model):
    def __init__(self, deter=10, stoch=4, hidden=12, features=6, free_nats=0.05, balance=0.8):
        super().__init__()
        self.deter, self.stoch = deter, stoch
        self.free_nats, self.balance = free_nats, balance
        self.embed = layers.Dense(hidden, activation="silu", name="embed")
        self.inp = layers.Dense(hidden, activation="silu", name="inp")
        self.cell = layers.GRUCell(deter, name="cell")
        self.prior = layers.Dense(2 * stoch, name="prior")
        self.post = layers.Dense(2 * stoch, name="post")
        self.decoder = keras.Sequential(
            [layers.Dense(hidden, activation="silu"), layers.Dense(features)], name="decoder"
        )
        self.reward = layers.Dense(1, name="reward")
        self.loss_tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.loss_tracker]

    def stats(self, x):
        mean, std = ops.split(x, 2, axis=-1)
        return mean, ops.softplus(std) + 0.1

    def observe(self, inputs):
        obs, action, noise = inputs["obs"], inputs["action"], inputs["noise"]
        batch = ops.shape(obs)[0]
        h = ops.zeros((batch, self.deter), dtype=obs.dtype)
        z = ops.zeros((batch, self.stoch), dtype=obs.dtype)
        embedded = self.embed(obs)
        states, priors, posts = [], [], []
        for t in range(obs.shape[1]):
            h, _ = self.cell(self.inp(ops.concatenate([z, action[:, t]], -1)), [h])
            priors.append(self.stats(self.prior(h)))
            mean, std = self.stats(self.post(ops.concatenate([h, embedded[:, t]], -1)))
            z = mean + std * noise[:, t]
            posts.append((mean, std))
            states.append(ops.concatenate([h, z], -1))
        stack = lambda pairs: tuple(ops.stack(part, 1) for part in zip(*pairs))
        return ops.stack(states, 1), stack(priors), stack(posts)

    def call(self, inputs):
        state, _, _ = self.observe(inputs)
        return {"obs": self.decoder(state), "reward": self.reward(state)[..., 0]}

    def train_step(self, data):
        inputs, reward = data
        with tf.GradientTape() as tape:
            state, prior, post = self.observe(inputs)
            image = ops.sum(ops.square(self.decoder(state) - inputs["obs"]), -1) / 2
            reward_error = ops.square(self.reward(state)[..., 0] - reward) / 2
            stop = lambda stats: tuple(ops.stop_gradient(s) for s in stats)
            toward_post = ops.maximum(kl(stop(post), prior), self.free_nats)
            toward_prior = ops.maximum(kl(post, stop(prior)), self.free_nats)
            divergence = self.balance * toward_post + (1 - self.balance) * toward_prior
            loss = ops.mean(ops.sum(image + reward_error + divergence, axis=1))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}


def kl(p, q):
    """Of diagonal normal distributions, each (mean, std)."""
    ratio = ops.square(p[1] / q[1])
    shift = ops.square((p[0] - q[0]) / q[1])
    return 0.5 * ops.sum(ratio + shift - 1 - ops.log(ratio), -1)


def build():
    return WorldModel()
