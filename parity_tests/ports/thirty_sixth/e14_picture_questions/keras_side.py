"""Answers to short questions about small pictures."""

import keras
from keras import layers, regularizers

SIZE, WORDS, LENGTH, ANSWERS, WIDTH = 12, 15, 7, 6, 12


def l2():
    return regularizers.L2(5e-3)


def build():
    picture = keras.Input((SIZE, SIZE, 3), name="picture")
    question = keras.Input((LENGTH,), dtype="int32", name="question")

    x = layers.Rescaling(1 / 128, offset=-1.0, name="rescale")(picture)
    x = layers.Conv2D(8, 3, activation="relu", kernel_regularizer=l2(), name="conv1")(x)  # 10
    x = layers.MaxPooling2D(2, name="pool1")(x)  # 5
    x = layers.Conv2D(WIDTH, 3, activation="relu", kernel_regularizer=l2(), name="conv2")(x)  # 3
    regions = layers.Reshape((9, WIDTH), name="regions")(x)

    q = layers.Embedding(WORDS, 8, mask_zero=True, embeddings_regularizer=l2(), name="words")(question)
    q = layers.GRU(
        WIDTH, return_sequences=True, kernel_regularizer=l2(), recurrent_regularizer=l2(), name="read"
    )(q)
    q = layers.GlobalAveragePooling1D(name="gist")(q)

    scores = layers.Dot(axes=(2, 1), name="scores")([regions, q])
    look = layers.Softmax(name="look")(layers.Rescaling(WIDTH**-0.5, name="temper")(scores))
    seen = layers.Dot(axes=(1, 1), name="seen")([look, regions])
    x = layers.Concatenate(name="both")([seen, q, layers.Multiply(name="product")([seen, q])])
    x = layers.Dense(16, activation="tanh", kernel_regularizer=l2(), name="think")(x)
    return keras.Model(
        [picture, question],
        layers.Dense(ANSWERS, kernel_regularizer=l2(), name="answer")(x),
        name="questions",
    )


def optimizer():
    return keras.optimizers.SGD(learning_rate=0.05, momentum=0.9)
