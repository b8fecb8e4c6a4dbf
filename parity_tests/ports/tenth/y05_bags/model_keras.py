"""Multiple-instance learning: a bag of instances, pooled by gated attention, has one class."""

import keras
from keras import layers, ops

INSTANCES, FEATURES, CLASSES = 10, 8, 4
CLASS_WEIGHTS = [0.6, 1.0, 1.4, 2.5]
SMOOTHING = 0.1


class MaskedMean(layers.Layer):
    def call(self, x, mask_values):
        weights = mask_values[..., None]
        mean = ops.sum(x * weights, axis=1, keepdims=True) / ops.sum(weights, axis=1, keepdims=True)
        return ops.broadcast_to(mean, ops.shape(x))


class GatedAttentionPooling(layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.content = layers.Dense(units, activation="tanh", name="content")
        self.gate = layers.Dense(units, activation="sigmoid", name="gate")
        self.score = layers.Dense(1, use_bias=False, name="score")

    def call(self, x, mask_values):
        scores = self.score(self.content(x) * self.gate(x))[..., 0]
        scores = scores - 1e9 * (1.0 - mask_values)
        attention = ops.softmax(scores, axis=-1)
        return ops.einsum("bm,bmf->bf", attention, x)


def build():
    instances = keras.Input((INSTANCES, FEATURES), name="instances")
    present = keras.Input((INSTANCES,), name="present")

    x = layers.Dense(32, activation="relu", name="encode1")(instances)
    context = MaskedMean(name="context")(x, present)
    x = layers.Concatenate()([x, context])
    x = layers.Dense(32, activation="relu", name="encode2")(x)
    bag = GatedAttentionPooling(16, name="pool")(x, present)
    bag = layers.Dropout(0.25)(bag)
    return keras.Model([instances, present], layers.Dense(CLASSES, name="classes")(bag))


def loss(y_true, y_pred):
    """Smoothed cross-entropy; a bag counts by the weight of its class."""
    label = ops.cast(ops.reshape(y_true, (-1,)), "int32")
    target = ops.one_hot(label, CLASSES, dtype=y_pred.dtype) * (1 - SMOOTHING) + SMOOTHING / CLASSES
    entropy = -ops.sum(target * ops.log_softmax(y_pred, axis=-1), axis=-1)
    return ops.take(ops.convert_to_tensor(CLASS_WEIGHTS, dtype=y_pred.dtype), label) * entropy
