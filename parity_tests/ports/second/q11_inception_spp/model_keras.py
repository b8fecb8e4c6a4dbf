from keras import Input, Model, Sequential, layers


def inception(x, sizes, name):
    a, b1, b3, c1, c5, d = sizes

    def conv(f, k, n):
        return layers.Conv2D(f, k, padding="same", activation="relu", name=f"{name}_{n}")

    branches = [
        conv(a, 1, "1x1")(x),
        conv(b3, 3, "3x3")(conv(b1, 1, "3x3_reduce")(x)),
        conv(c5, 5, "5x5")(conv(c1, 1, "5x5_reduce")(x)),
        conv(d, 1, "pool_proj")(layers.MaxPooling2D(3, 1, padding="same", name=f"{name}_pool")(x)),
    ]
    return layers.Concatenate(name=f"{name}_output")(branches)


def build(classes=10):
    image = Input((16, 16, 3), name="x")
    x = layers.Conv2D(16, 3, strides=2, padding="same", activation="relu", name="stem")(image)
    x = inception(x, (8, 8, 12, 4, 6, 6), "inception_3a")
    x = inception(x, (8, 8, 16, 4, 8, 8), "inception_3b")
    pyramid = []
    for level in (1, 2, 4):
        p = layers.MaxPooling2D(8 // level, name=f"spp{level}")(x)
        pyramid.append(layers.Flatten(name=f"spp{level}_flat")(p))
    x = layers.Concatenate(name="spp")(pyramid)
    head = Sequential(
        [layers.Dense(48, activation="relu", name="fc1"), layers.Dense(classes, name="fc2")], name="head"
    )
    return Model(image, head(x))
