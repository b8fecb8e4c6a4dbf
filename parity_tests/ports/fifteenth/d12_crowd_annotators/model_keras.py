"""Learning from crowds: a classifier of X-ray patches under five annotators' confusion matrices."""

import keras
from keras import layers, ops

CLASSES, ANNOTATORS, MISSING = 4, 5, -1


@keras.saving.register_keras_serializable()
class CrowdLayer(layers.Layer):
    """A (class, class) matrix per annotator on top of the classifier's probabilities."""

    def __init__(self, annotators, **kwargs):
        super().__init__(**kwargs)
        self.annotators = annotators

    def build(self, shape):
        eye = lambda s, dtype=None: ops.broadcast_to(ops.eye(s[1], dtype=dtype), s)
        self.confusion = self.add_weight(
            shape=(self.annotators, shape[-1], shape[-1]), initializer=eye, name="confusion"
        )

    def call(self, probabilities):
        return ops.einsum("bi,rij->brj", probabilities, self.confusion)


class CrowdCrossEntropy(keras.losses.Loss):
    """Mean over the annotators that labelled the patch."""

    def call(self, y_true, y_pred):
        labelled = ops.cast(ops.not_equal(y_true, MISSING), y_pred.dtype)
        target = ops.cast(ops.maximum(y_true, 0), "int32")
        log_p = ops.log_softmax(y_pred, axis=-1)
        nll = -ops.sum(ops.one_hot(target, CLASSES, dtype=y_pred.dtype) * log_p, axis=-1)
        count = ops.maximum(ops.sum(labelled, axis=-1), 1.0)
        return ops.sum(nll * labelled, axis=-1) / count


def build():
    model = keras.Sequential(
        [
            keras.Input((16, 16, 1)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.SeparableConv2D(12, 3, depth_multiplier=2, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(32, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(CLASSES, activation="softmax", name="truth"),
            CrowdLayer(ANNOTATORS, name="crowd"),
        ]
    )
    model.compile(keras.optimizers.Adam(1e-3, clipvalue=0.5), loss=CrowdCrossEntropy())
    return model
