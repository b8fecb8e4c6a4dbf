import keras
from keras import layers, ops

MODES = 3
STEPS = 6
DIM = 32


class PolylineEncoder(layers.Layer):
    """Points are encoded one by one, each level appends the maximum over the polyline."""

    def __init__(self, width, levels=2, **kwargs):
        super().__init__(**kwargs)
        self.dense = [layers.Dense(width, name=f"dense_{i}") for i in range(levels)]
        self.norm = [layers.LayerNormalization(epsilon=1e-5, name=f"norm_{i}") for i in range(levels)]

    def build(self, input_shape):
        last = input_shape[-1]
        for dense, norm in zip(self.dense, self.norm):
            dense.build((*input_shape[:-1], last))
            norm.build((*input_shape[:-1], dense.units))
            last = 2 * dense.units
        super().build(input_shape)

    def call(self, x):
        for dense, norm in zip(self.dense, self.norm):
            x = ops.relu(norm(dense(x)))
            top = ops.max(x, axis=-2, keepdims=True)
            x = ops.concatenate([x, ops.broadcast_to(top, ops.shape(x))], axis=-1)
        return ops.max(x, axis=-2)


def interaction(x, mask, name):
    y = layers.LayerNormalization(epsilon=1e-5, name=f"{name}_norm")(x)
    y = layers.MultiHeadAttention(2, DIM // 2, name=f"{name}_attention")(y, y, attention_mask=mask)
    x = layers.Add(name=f"{name}_add")([x, y])
    y = layers.LayerNormalization(epsilon=1e-5, name=f"{name}_ff_norm")(x)
    y = layers.Dense(48, activation="silu", name=f"{name}_up")(y)
    y = layers.Dense(DIM, name=f"{name}_down")(y)
    return layers.Add(name=f"{name}_ff_add")([x, y])


def build():
    walkers = keras.Input((5, 7, 5), name="walkers")
    walker_mask = keras.Input((5,), name="walker_mask")
    kerbs = keras.Input((4, 5, 5), name="kerbs")

    people = PolylineEncoder(DIM // 2, name="walker_encoder")(walkers)
    street = PolylineEncoder(DIM // 2, name="kerb_encoder")(kerbs)
    tokens = layers.Concatenate(axis=1, name="scene")([people, street])
    present = ops.concatenate([walker_mask, ops.ones_like(kerbs[:, :, 0, 0])], axis=1)
    mask = ops.expand_dims(present > 0, 1)

    tokens = interaction(tokens, mask, "scene_1")
    tokens = interaction(tokens, mask, "scene_2")
    focus = layers.LayerNormalization(epsilon=1e-5, name="focus_norm")(tokens[:, 0])

    steps = layers.Dense(MODES * STEPS * 2, name="steps")(focus)
    steps = layers.Reshape((MODES, STEPS, 2), name="steps_by_mode")(steps)
    paths = ops.cumsum(steps, axis=2)
    paths = layers.Reshape((MODES, STEPS * 2), name="paths")(paths)
    score = layers.Dense(MODES, name="score")(focus)
    result = layers.Concatenate(axis=-1, name="result")([paths, score[..., None]])
    return keras.Model([walkers, walker_mask, kerbs], result, name="crossings")


def best_mode_loss(targets, outputs):
    targets = ops.cast(targets, outputs.dtype)
    paths = ops.reshape(outputs[..., :-1], (-1, MODES, STEPS, 2))
    score = outputs[..., -1]
    known = targets[:, None, :, 2]
    gap = paths - targets[:, None, :, :2]
    distance = ops.sqrt(ops.sum(ops.square(gap), axis=-1) + 1e-4)
    per_mode = ops.sum(distance * known, axis=-1) / ops.sum(known, axis=-1)
    best = ops.one_hot(ops.argmin(per_mode, axis=-1), MODES, dtype=outputs.dtype)
    regression = ops.sum(best * per_mode, axis=-1)
    log_score = ops.log_softmax(score, axis=-1)
    return regression - 0.3 * ops.sum(best * log_score, axis=-1)
