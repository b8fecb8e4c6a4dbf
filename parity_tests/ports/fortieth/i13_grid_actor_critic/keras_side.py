"""PPO update of a grid-world agent. Target `policy`: action, advantage, old log-probability."""

import keras
from keras import layers, ops

N_ACTIONS = 5
CLIP, ENTROPY = 0.2, 0.01


def build():
    grid = keras.Input((8, 8, 3), name="grid")
    bag = keras.Input((4,), name="bag")
    x = layers.Conv2D(12, 3, padding="same", activation="elu", name="eye1")(grid)
    x = layers.Conv2D(16, 3, strides=2, activation="elu", name="eye2")(x)
    x = layers.Flatten()(x)
    b = layers.Dense(8, activation="softsign", name="bag_enc")(bag)
    h = layers.Concatenate()([x, b])
    h = layers.Dense(32, name="trunk")(h)
    h = layers.LayerNormalization(name="trunk_norm")(h)
    h = layers.Activation("tanh")(h)
    p = layers.Dense(24, activation="tanh", name="actor_hidden")(h)
    v = layers.Dense(24, activation="tanh", name="critic_hidden")(h)
    return keras.Model(
        {"grid": grid, "bag": bag},
        {"policy": layers.Dense(N_ACTIONS, name="policy")(p), "value": layers.Dense(1, name="value")(v)},
    )


def policy_loss(target, logits):
    action = ops.cast(target[:, 0], "int32")
    adv, old = ops.cast(target[:, 1], logits.dtype), ops.cast(target[:, 2], logits.dtype)
    logp_all = ops.log_softmax(logits, axis=-1)
    logp = ops.sum(logp_all * ops.one_hot(action, N_ACTIONS, dtype=logits.dtype), axis=-1)
    ratio = ops.exp(logp - old)
    surrogate = ops.minimum(ratio * adv, ops.clip(ratio, 1 - CLIP, 1 + CLIP) * adv)
    entropy = -ops.sum(ops.exp(logp_all) * logp_all, axis=-1)
    return -ops.mean(surrogate) - ENTROPY * ops.mean(entropy)


def value_loss(target, value):
    e = ops.cast(target, value.dtype) - value
    return ops.mean(ops.where(ops.abs(e) < 1.0, 0.5 * e * e, ops.abs(e) - 0.5))


def make_optimizer():
    lr = keras.optimizers.schedules.PolynomialDecay(3e-2, decay_steps=60, end_learning_rate=3e-3, power=1.0)
    opt = keras.optimizers.SGD(lr, momentum=0.9, weight_decay=1e-2, global_clipnorm=0.5)
    opt.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    return opt
