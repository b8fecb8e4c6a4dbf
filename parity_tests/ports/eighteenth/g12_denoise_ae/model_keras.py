import keras
from keras import layers


class Encoder(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.convs = [layers.Conv2D(f, 3, strides=2, padding="same", name=f"conv_{f}") for f in (8, 12)]
        self.acts = [layers.PReLU(shared_axes=[1, 2], name=f"prelu_{f}") for f in (8, 12)]
        self.code = layers.Dense(10, name="code")

    def call(self, x):
        for conv, act in zip(self.convs, self.acts):
            x = act(conv(x))
        return self.code(x)


class Decoder(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.deconv = layers.Conv2DTranspose(10, 3, strides=2, padding="same", name="deconv")
        self.act = layers.LeakyReLU(negative_slope=0.2)
        self.resize = layers.UpSampling2D(2, interpolation="bilinear")
        self.refine = layers.Conv2D(6, 3, padding="same", activation="elu", name="refine")
        self.pixels = layers.Conv2D(1, 1, activation="sigmoid", name="pixels")

    def call(self, z):
        x = self.act(self.deconv(z))
        return self.pixels(self.refine(self.resize(x)))


class Denoiser(keras.Model):
    def __init__(self):
        super().__init__(name="denoiser")
        self.encoder = Encoder(name="encoder")
        self.decoder = Decoder(name="decoder")

    def call(self, noisy):
        return self.decoder(self.encoder(noisy))


def build():
    return Denoiser()


def optimizer():
    # 0.5 for the first ten updates, then 0.1, from the 17th on 0.02
    lr = keras.optimizers.schedules.PiecewiseConstantDecay([9, 15], [0.5, 0.1, 0.02])
    return keras.optimizers.SGD(lr)
