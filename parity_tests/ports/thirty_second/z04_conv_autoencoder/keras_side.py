import keras
from keras import layers, regularizers


def build():
    inputs = keras.Input((16, 16, 1))
    x = layers.Conv2D(6, 3, strides=2, padding="same", activation="elu")(inputs)
    x = layers.Conv2D(8, 3, strides=2, padding="same", activation="elu")(x)
    x = layers.Flatten()(x)
    code = layers.Dense(12, activation="tanh", name="code", activity_regularizer=regularizers.L1(1e-3))(x)
    x = layers.Dense(4 * 4 * 8, activation="elu")(code)
    x = layers.Reshape((4, 4, 8))(x)
    x = layers.Conv2DTranspose(6, 3, strides=2, padding="same", activation="elu")(x)
    x = layers.Conv2DTranspose(4, 3, strides=2, padding="same", activation="elu")(x)
    x = layers.Conv2D(1, 3, padding="same", activation="sigmoid")(x)
    return keras.Model(inputs, x, name="autoencoder")


def loss(y_true, y_pred):
    return keras.ops.mean(keras.losses.mean_squared_error(y_true, y_pred))
