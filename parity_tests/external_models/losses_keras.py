"""Keras models with several outputs, and losses of a user's own: what `parity pair` is given with --keras-loss."""

import keras
from keras import layers, ops


def heads():
    """A class and a box."""
    x = keras.Input((6,), name="x")
    y = layers.Dense(8, activation="tanh", name="trunk")(x)
    outputs = {"label": layers.Dense(3, name="label")(y), "box": layers.Dense(4, name="box")(y)}
    return keras.Model(x, outputs)


def onward():
    """The class is made of the box."""
    x = keras.Input((6,), name="x")
    box = layers.Dense(4, name="box")(layers.Dense(8, activation="tanh", name="trunk")(x))
    return keras.Model(x, {"label": layers.Dense(3, name="label")(box), "box": box})


def listed():
    """The same in a list."""
    model = heads()
    return keras.Model(model.inputs, [model.output["label"], model.output["box"]])


def binary():
    """One logit a sample."""
    x = keras.Input((6,), name="x")
    y = layers.Dense(8, activation="tanh", name="trunk")(x)
    return keras.Model(x, layers.Dense(1, name="logit")(y))


def bce():
    """As it is made where a model is compiled."""
    return keras.losses.BinaryCrossentropy(from_logits=True)


def classes(y_true, y_pred):
    """A value for each sample."""
    return keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)


def squares(y_true, y_pred):
    """A mean over the elements of each sample."""
    return ops.mean(ops.square(y_pred - y_true), axis=-1)


def detection(targets, outputs):
    """Of all outputs at once."""
    label = ops.mean(classes(targets["label"], outputs["label"]))
    return label + 0.5 * ops.mean(squares(targets["box"], outputs["box"]))


def detection_of_some(targets, outputs):
    """Class 0 is no label."""
    some = ops.cast(targets["label"] > 0, outputs["label"].dtype)
    label = ops.mean(some * classes(targets["label"], outputs["label"]))
    return label + 0.5 * ops.mean(squares(targets["box"], outputs["box"]))


def ctc(targets, outputs):
    """Of two frames that both outputs make; class 0 is the blank, and no label."""
    frames = ops.reshape(ops.concatenate([outputs["label"], outputs["box"][:, 1:]], 1), (-1, 2, 3))
    length = ops.cast(targets["label"] > 0, "int32")
    return ops.mean(ops.ctc_loss(targets["label"][:, None], frames, length, ops.full_like(length, 2)))


def of_list(targets, outputs):
    """The same of a list."""
    names = ("label", "box")
    return detection(dict(zip(names, targets, strict=True)), dict(zip(names, outputs, strict=True)))


def bce_by_weights():
    """Divided by the sum of the sample weights."""
    return keras.losses.BinaryCrossentropy(from_logits=True, reduction="mean_with_sample_weight")


def bce_sum():
    """A sum over the samples."""
    return keras.losses.BinaryCrossentropy(from_logits=True, reduction="sum")


def largest(y_true, y_pred):
    """Of the batch as a whole."""
    return ops.max(ops.square(y_pred - y_true))


def overlap(y_true, y_pred):
    """A quotient for each sample."""
    y_pred = ops.square(y_pred)
    sums = ops.sum(ops.square(y_true) * y_pred, axis=-1), ops.sum(y_pred, axis=-1)
    return 1 - sums[0] / (sums[1] + 1)


def alike(y_true, y_pred):
    """Two views that each learn to be like the other one's."""
    one, other_two, two, other_one = (ops.tanh(part) for part in ops.unstack(y_pred, axis=1))
    return y_true[:, 0] * (one * ops.stop_gradient(other_two) + two * ops.stop_gradient(other_one))


def committed(y_true, y_pred):
    """Two halves of the outputs are drawn together, the second one with a quarter of the strength."""
    one, other = y_pred[:, :2], y_pred[:, 2:]
    drawn = ops.mean((one - ops.stop_gradient(other)) ** 2)
    committed = ops.mean((ops.stop_gradient(one) - other) ** 2)
    return ops.mean((y_true - y_pred) ** 2, axis=-1) + drawn + 0.25 * committed


class Small(layers.Layer):
    """It wants what passes to be small."""

    def call(self, x):
        self.add_loss(0.1 * ops.mean(ops.square(x)))
        return x


def penalized():
    """One logit a sample, with what a regularizer and a layer add to the loss."""
    x = keras.Input((6,), name="x")
    kernel = keras.regularizers.L2(0.01)
    y = Small(name="small")(layers.Dense(8, activation="tanh", kernel_regularizer=kernel, name="trunk")(x))
    return keras.Model(x, layers.Dense(1, name="logit")(y))


def compiled():
    """It knows its loss."""
    model = penalized()
    model.compile(loss=bce())
    return model


def dropped():
    """Likewise, with dropout."""
    x = keras.Input((6,), name="x")
    y = layers.Dropout(0.5, name="drop")(layers.Dense(8, activation="tanh", name="trunk")(x))
    model = keras.Model(x, layers.Dense(1, name="logit")(y))
    model.compile(loss=bce())
    return model


class Positive(layers.Layer):
    """Its mask hides what is not above zero from the loss."""

    def call(self, x):
        return x

    def compute_mask(self, x, mask=None):
        return x[..., 0] > 0


def masked():
    """Four numbers a sample, some of them hidden."""
    x = keras.Input((6,), name="x")
    y = layers.Dense(4, name="box")(layers.Dense(8, activation="tanh", name="trunk")(x))
    return keras.Model(x, Positive(name="positive")(layers.Reshape((4, 1), name="column")(y)))


def centred():
    """Four numbers a sample, less their means over the batch."""
    x = keras.Input((6,), name="x")
    y = layers.Dense(4, name="box")(layers.Dense(8, activation="tanh", name="trunk")(x))
    return keras.Model(x, y - ops.mean(y, axis=0))


def coded():
    """What passes is to be small, by a factor that Keras keeps as float32."""
    x = keras.Input((6,), name="x")
    small = keras.regularizers.L1(1e-3)
    y = layers.Dense(8, activation="tanh", activity_regularizer=small, name="trunk")(x)
    return keras.Model(x, layers.Dense(1, name="logit")(y))


def joined():
    """The class and the box in one output."""
    model = heads()
    return keras.Model(model.inputs, layers.Concatenate()([model.output["label"], model.output["box"]]))


def of_joined(y_true, y_pred):
    """Of the box alone."""
    return squares(y_true, y_pred[:, 3:])


def three_terms(y_true, y_pred):
    """Of each sample, added up before the mean."""
    sizes = 0.25 * ops.abs(y_pred) + 0.5 * ops.square(ops.tanh(y_pred))
    return ops.mean(ops.square(y_pred - y_true) + sizes, axis=-1)


def probable():
    """Probabilities."""
    x = keras.Input((6,), name="x")
    return keras.Model(x, layers.Dense(3, activation="softmax", name="label")(x))


def divided(targets, outputs):
    """Keras's, which divides them by their sum."""
    return keras.losses.categorical_crossentropy(ops.one_hot(ops.cast(targets, "int32"), 3), outputs)
