import keras
import tensorflow as tf
from keras import layers, ops

CLASS_WEIGHT = tf.constant([0.8, 2.0, 0.7], tf.float32)  # helix, sheet, coil


def residue_loss(y_true, y_pred):
    """Cross entropy of the residues that exist, weighted by class; the mean over residues."""
    y = tf.cast(tf.reshape(y_true, tf.shape(y_true)[:2]), tf.int32)
    known = tf.cast(y >= 0, tf.float32)
    y = tf.maximum(y, 0)
    ce = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=y_pred)
    ce = ce * tf.gather(CLASS_WEIGHT, y) * known
    return tf.reduce_sum(ce) / tf.reduce_sum(known)


def block(x, keep, rate, i):
    h = layers.LayerNormalization(name=f"ln{i}")(x)
    h = layers.Conv1D(48, 3, dilation_rate=rate, padding="same", activation="gelu", name=f"dil{i}")(h * keep)
    h = layers.Conv1D(24, 1, name=f"pw{i}")(h)
    return layers.Add()([x, h])


def build():
    residues = keras.Input((36,), dtype="int32", name="residues")
    profile = keras.Input((36, 6), name="profile")
    mask = ops.not_equal(residues, 0)
    keep = ops.expand_dims(ops.cast(mask, "float32"), -1)
    x = layers.Concatenate()([layers.Embedding(21, 18, name="aa")(residues), profile])
    for i, rate in enumerate((1, 2, 4)):
        x = block(x, keep, rate, i)
    x = layers.Bidirectional(layers.GRU(16, return_sequences=True), name="bigru")(x, mask=mask)
    x = layers.Dense(24, activation="relu", name="hidden")(x)
    x = layers.Dense(3, name="ss3")(x)
    out = x * keep
    return keras.Model({"residues": residues, "profile": profile}, out)
