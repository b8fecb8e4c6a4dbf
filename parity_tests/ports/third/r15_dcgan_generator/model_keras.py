import keras
from keras import layers


def build(latent=12):
    model = keras.Sequential(name="generator")
    model.add(keras.Input((latent,), name="z"))
    model.add(layers.Dense(4 * 4 * 24, use_bias=False))
    model.add(layers.Reshape((4, 4, 24)))
    model.add(layers.BatchNormalization(momentum=0.8, epsilon=1e-5))
    model.add(layers.LeakyReLU(negative_slope=0.2))
    model.add(layers.Conv2DTranspose(12, 3, strides=2, padding="same", use_bias=False))
    model.add(layers.BatchNormalization(momentum=0.8, epsilon=1e-5))
    model.add(layers.LeakyReLU(negative_slope=0.2))
    model.add(layers.Conv2DTranspose(8, 4, strides=2, padding="same", use_bias=False))
    model.add(layers.BatchNormalization(momentum=0.8, epsilon=1e-5))
    model.add(layers.LeakyReLU(negative_slope=0.2))
    model.add(layers.Conv2D(1, 3, padding="same", activation="tanh"))
    return model
