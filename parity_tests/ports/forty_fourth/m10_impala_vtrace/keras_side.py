"""IMPALA learner: recurrent policy and baseline, trained off-policy with V-trace."""

import keras
import tensorflow as tf
from keras import layers, ops

UNROLL = 8
FEATURES = 10
ACTIONS = 4
BASELINE_COST = 0.5
ENTROPY_COST = 0.01
CLIP_RHO = 1.0
CLIP_PG_RHO = 1.0


class ResetLSTMCell(layers.Layer):
    """LSTM cell that starts afresh where an episode does (flag in the last feature)."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.cell = layers.LSTMCell(units)
        self.state_size = self.cell.state_size
        self.output_size = units

    def build(self, shape):
        self.cell.build((*shape[:-1], shape[-1] - 1))

    def call(self, inputs, states):
        keep = 1.0 - inputs[:, -1:]
        return self.cell(inputs[:, :-1], [state * keep for state in states])


def vtrace(log_rhos, discounts, rewards, values, bootstrap):
    """All (time, batch)."""
    rhos = ops.exp(log_rhos)
    clipped = ops.minimum(CLIP_RHO, rhos)
    cs = ops.minimum(1.0, rhos)
    next_values = ops.concatenate([values[1:], bootstrap[None]], axis=0)
    deltas = clipped * (rewards + discounts * next_values - values)

    def backward(accumulated, at):
        delta, discount, c = at
        accumulated = delta + discount * c * accumulated
        return accumulated, accumulated

    _, correction = ops.scan(backward, ops.zeros_like(bootstrap), (deltas, discounts, cs), reverse=True)
    targets = values + correction
    next_targets = ops.concatenate([targets[1:], bootstrap[None]], axis=0)
    advantages = ops.minimum(CLIP_PG_RHO, rhos) * (rewards + discounts * next_targets - values)
    return ops.stop_gradient(targets), ops.stop_gradient(advantages)


class Learner(keras.Model):
    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            out = self(x, training=True)
            logits = ops.log_softmax(out["policy"][:, :-1], axis=-1)
            behaviour = ops.log_softmax(ops.cast(y["behaviour"], logits.dtype), axis=-1)
            taken = ops.one_hot(ops.cast(y["action"], "int32"), ACTIONS, dtype=logits.dtype)
            log_taken = ops.sum(logits * taken, axis=-1)
            log_rhos = ops.stop_gradient(log_taken) - ops.sum(behaviour * taken, axis=-1)
            rewards = ops.clip(ops.cast(y["reward"], logits.dtype), -1.0, 1.0)
            discounts = ops.cast(y["discount"], logits.dtype)
            values = out["baseline"]

            targets, advantages = vtrace(
                ops.transpose(log_rhos),
                ops.transpose(discounts),
                ops.transpose(rewards),
                ops.transpose(values[:, :-1]),
                values[:, -1],
            )
            targets, advantages = ops.transpose(targets), ops.transpose(advantages)
            policy_loss = -ops.sum(log_taken * advantages, axis=1)
            baseline_loss = 0.5 * ops.sum(ops.square(targets - values[:, :-1]), axis=1)
            negentropy = ops.sum(ops.exp(logits) * logits, axis=(1, 2))
            loss = ops.mean(policy_loss + BASELINE_COST * baseline_loss + ENTROPY_COST * negentropy)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


def build():
    steps = UNROLL + 1
    observation = keras.Input((steps, FEATURES), name="observation")
    last_action = keras.Input((steps,), dtype="int32", name="last_action")
    last_reward = keras.Input((steps,), name="last_reward")
    first = keras.Input((steps,), name="first")

    x = layers.Dense(48, activation="elu", name="torso_1")(observation)
    x = layers.LayerNormalization(epsilon=1e-5, name="torso_norm")(x)
    x = layers.Dense(32, activation="elu", name="torso_2")(x)
    core = ops.concatenate(
        [
            x,
            ops.one_hot(last_action, ACTIONS, dtype=x.dtype),
            ops.expand_dims(ops.clip(last_reward, -1.0, 1.0), -1),
            ops.expand_dims(first, -1),
        ],
        axis=-1,
    )
    core = layers.RNN(ResetLSTMCell(32), return_sequences=True, name="core")(core)
    policy = layers.Dense(ACTIONS, name="policy")(core)
    baseline = layers.Dense(1, name="baseline")(core)
    return Learner(
        inputs={
            "observation": observation,
            "last_action": last_action,
            "last_reward": last_reward,
            "first": first,
        },
        outputs={"policy": policy, "baseline": ops.squeeze(baseline, -1)},
    )


def optimizer():
    rate = keras.optimizers.schedules.PolynomialDecay(2**-9, decay_steps=512, end_learning_rate=0.0)
    return keras.optimizers.RMSprop(rate, rho=0.99, epsilon=0.01, global_clipnorm=1.0)
