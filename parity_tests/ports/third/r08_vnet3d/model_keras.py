import keras
from keras import layers


def conv_unit(x, filters):
    x = layers.Conv3D(filters, 3, padding="same", kernel_initializer="he_normal")(x)
    x = layers.GroupNormalization(groups=-1, epsilon=1e-5)(x)
    return layers.PReLU(shared_axes=[1, 2, 3])(x)


def v_block(x, filters, convs):
    inp = x
    for _ in range(convs):
        x = conv_unit(x, filters)
    if inp.shape[-1] == filters:
        x = layers.Add()([x, inp])
    return x


def build(shape=(12, 12, 12, 1), base=4, classes=3):
    scan = keras.Input(shape, name="scan")
    e1 = v_block(scan, base, 1)
    d1 = layers.Conv3D(base * 2, 2, strides=2, activation="elu")(e1)
    e2 = v_block(d1, base * 2, 2)
    d2 = layers.Conv3D(base * 3, 2, strides=2, activation="elu")(e2)
    e3 = v_block(d2, base * 3, 1)
    u2 = layers.Conv3DTranspose(base * 2, 2, strides=2)(e3)
    x = v_block(layers.Concatenate()([u2, e2]), base * 2, 1)
    u1 = layers.Conv3DTranspose(base, 2, strides=2)(x)
    x = v_block(layers.Concatenate()([u1, e1]), base, 1)
    return keras.Model(scan, layers.Conv3D(classes, 1)(x), name="vnet")
