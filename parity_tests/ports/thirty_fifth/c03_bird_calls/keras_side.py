"""Bird species from log-mel patches: a 'pretrained' convolutional trunk is frozen, a recurrent head is trained."""

import keras
from keras import layers

MELS, FRAMES, SPECIES = 20, 32, 4


def trunk():
    inp = keras.Input((FRAMES, MELS))
    x = layers.BatchNormalization(name="bn_in")(inp)
    x = layers.Conv1D(24, 5, padding="same", use_bias=False, name="conv1")(x)
    x = layers.BatchNormalization(name="bn1")(x)
    x = layers.ReLU(name="relu1")(x)
    x = layers.MaxPooling1D(2, name="pool1")(x)
    x = layers.Conv1D(32, 3, padding="same", use_bias=False, name="conv2")(x)
    x = layers.BatchNormalization(name="bn2")(x)
    x = layers.ReLU(name="relu2")(x)
    x = layers.MaxPooling1D(2, name="pool2")(x)
    return keras.Model(inp, x, name="trunk")


def build():
    base = trunk()
    base.trainable = False  # fine-tune the head only
    inp = keras.Input((FRAMES, MELS), name="logmel")
    x = base(inp)
    x = layers.GRU(16, name="gru")(x)
    out = layers.Dense(SPECIES, name="species")(x)
    return keras.Model(inp, out, name="birds")


def optimizer():
    return keras.optimizers.SGD(learning_rate=0.05, momentum=0.9, nesterov=True)
