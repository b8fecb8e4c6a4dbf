from keras import Input, Model, layers, ops


class Combine(layers.Layer):
    """Sum of the experts' outputs, weighted by the gate."""

    def call(self, experts, weights):
        return ops.einsum("bed,be->bd", ops.stack(experts, axis=1), weights)


def build(features=16, experts=4, width=32, classes=5):
    x = Input((features,), name="x")
    outs = []
    for i in range(experts):
        h = layers.Dense(width, activation="relu", name=f"expert{i}_hidden")(x)
        outs.append(layers.Dense(width // 2, activation="relu", name=f"expert{i}_out")(h))
    gate = layers.Dense(experts, name="gate")(x)
    gate = layers.Softmax(name="gate_softmax")(gate)
    mixed = Combine(name="mixture")(outs, gate)
    h = layers.Dense(24, activation="relu", name="tower")(mixed)
    return Model(x, layers.Dense(classes, name="logits")(h), name="mixture_of_experts")
