"""QMIX: recurrent agents that share their weights, mixed monotonically by networks that read the state."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

AGENTS = 3
ACTIONS = 5
STEPS = 8
OBS = 10
STATE = 14
GAMMA = 0.97
TAU = 0.05
NAMES = ("obs", "state", "avail", "actions")


class Agent(keras.layers.Layer):
    """Utilities of all actions, from the history of an agent's observations and its own actions before."""

    def __init__(self, hidden=24, **kwargs):
        super().__init__(**kwargs)
        self.inner = layers.Dense(hidden, activation="relu", name="inner")
        self.memory = layers.GRU(hidden, return_sequences=True, name="memory")
        self.utility = layers.Dense(ACTIONS, name="utility")

    def call(self, obs, actions):
        batch = ops.shape(obs)[0]
        done = ops.one_hot(actions, ACTIONS, dtype=obs.dtype)
        before = ops.concatenate([ops.zeros_like(done[:, :1]), done[:, :-1]], axis=1)
        who = ops.broadcast_to(ops.eye(AGENTS, dtype=obs.dtype), (batch, STEPS + 1, AGENTS, AGENTS))
        x = ops.concatenate([obs, before, who], axis=-1)
        x = self.inner(ops.transpose(x, (0, 2, 1, 3)))
        x = self.memory(ops.reshape(x, (batch * AGENTS, STEPS + 1, x.shape[-1])))
        x = ops.reshape(self.utility(x), (batch, AGENTS, STEPS + 1, ACTIONS))
        return ops.transpose(x, (0, 2, 1, 3))


class Mixer(keras.layers.Layer):
    def __init__(self, embed=8, hyper=16, **kwargs):
        super().__init__(**kwargs)
        self.embed = embed
        self.weight1_in = layers.Dense(hyper, activation="relu", name="weight1_in")
        self.weight1_out = layers.Dense(AGENTS * embed, name="weight1_out")
        self.bias1 = layers.Dense(embed, name="bias1")
        self.weight2_in = layers.Dense(hyper, activation="relu", name="weight2_in")
        self.weight2_out = layers.Dense(embed, name="weight2_out")
        self.bias2_in = layers.Dense(embed, activation="relu", name="bias2_in")
        self.bias2_out = layers.Dense(1, name="bias2_out")

    def call(self, utilities, state):
        """(batch, steps, agents) and (batch, steps, state) to (batch, steps)."""
        weight1 = ops.abs(self.weight1_out(self.weight1_in(state)))
        weight1 = ops.reshape(weight1, (-1, state.shape[1], AGENTS, self.embed))
        hidden = ops.elu(ops.einsum("bta,btae->bte", utilities, weight1) + self.bias1(state))
        weight2 = ops.abs(self.weight2_out(self.weight2_in(state)))
        bias2 = self.bias2_out(self.bias2_in(state))[..., 0]
        return ops.sum(hidden * weight2, axis=-1) + bias2


class Qmix(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.agent = Agent(name="agent")
        self.mixer = Mixer(name="mixer")
        self.target_agent = Agent(name="target_agent", trainable=False)
        self.target_mixer = Mixer(name="target_mixer", trainable=False)

    def call(self, inputs, training=None):
        """The utilities, and the value of the team when all agents are greedy."""
        obs, state, avail, actions = named(inputs, NAMES)
        utilities = self.agent(obs, ops.cast(actions, "int32"))
        best = ops.max(masked(utilities, avail), axis=-1)
        return utilities, self.mixer(best, state)

    def pairs(self):
        online = self.agent.weights + self.mixer.weights
        return zip(self.target_agent.weights + self.target_mixer.weights, online)

    def train_step(self, data):
        inputs, targets = data
        obs, state, avail, actions = named(inputs, NAMES)
        actions = ops.cast(actions, "int32")
        reward, terminated, filled = named(targets, ("reward", "terminated", "filled"))
        for target, online in self.pairs():
            target.assign((1.0 - TAU) * target + TAU * online)

        with tf.GradientTape() as tape:
            utilities = self.agent(obs, actions)
            chosen = ops.take_along_axis(utilities[:, :-1], actions[:, :-1, :, None], axis=-1)[..., 0]
            value = self.mixer(chosen, state[:, :-1])

            greedy = ops.argmax(masked(utilities, avail), axis=-1)[:, 1:, :, None]
            later = ops.take_along_axis(self.target_agent(obs, actions)[:, 1:], greedy, axis=-1)[..., 0]
            bootstrap = self.target_mixer(later, state[:, 1:])
            goal = reward + GAMMA * (1.0 - terminated) * bootstrap
            error = (value - ops.stop_gradient(goal)) * filled
            loss = ops.sum(ops.square(error)) / ops.sum(filled)
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
        return {"loss": loss}


def masked(utilities, avail):
    return ops.where(ops.cast(avail, "bool"), utilities, -1e9)


def named(values, names):
    return [values[n] for n in names] if isinstance(values, dict) else list(values)


def build():
    floats = keras.config.floatx()
    model = Qmix(name="qmix")
    obs = np.zeros((1, STEPS + 1, AGENTS, OBS), floats)
    state = np.zeros((1, STEPS + 1, STATE), floats)
    actions = np.zeros((1, STEPS + 1, AGENTS), "int32")
    model(
        {
            "obs": obs,
            "state": state,
            "avail": np.ones((1, STEPS + 1, AGENTS, ACTIONS), floats),
            "actions": actions,
        }
    )
    model.target_agent(ops.convert_to_tensor(obs), ops.convert_to_tensor(actions))
    model.target_mixer(ops.convert_to_tensor(obs[..., 0]), ops.convert_to_tensor(state))
    for target, online in model.pairs():
        target.assign(online)
    return model
