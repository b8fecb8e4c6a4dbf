import keras
from keras import layers, ops


def conv_block(x, filters, name):
    x = layers.Conv2D(filters, 3, padding="same", use_bias=False, name=f"{name}_conv")(x)
    x = layers.GroupNormalization(groups=4, epsilon=1e-5, name=f"{name}_norm")(x)
    return layers.Activation("relu")(x)


def attend(skip, gate, filters):
    theta = layers.Conv2D(filters, 1, use_bias=False, name="theta")(skip)
    phi = layers.Conv2D(filters, 1, name="phi")(gate)
    alpha = layers.Conv2D(1, 1, activation="sigmoid", name="psi")(ops.relu(theta + phi))
    return layers.Multiply()([skip, alpha])


def build():
    scan = keras.Input((16, 16, 1), name="scan")
    fine = conv_block(scan, 8, "enc1")
    mid = conv_block(layers.MaxPooling2D(2)(fine), 16, "enc2")
    deep = conv_block(layers.MaxPooling2D(2)(mid), 16, "deep")

    up = layers.UpSampling2D(2, interpolation="bilinear")(deep)
    x = layers.Concatenate()([attend(mid, up, 8), up])
    x = conv_block(x, 16, "dec2")
    up = layers.UpSampling2D(2, interpolation="nearest")(x)
    x = conv_block(layers.Concatenate()([fine, up]), 8, "dec1")
    return keras.Model(scan, layers.Conv2D(1, 1, name="logits")(x))


def bce_dice(mask, logits):
    prob = ops.sigmoid(logits)
    overlap = ops.sum(prob * mask, axis=(1, 2, 3))
    total = ops.sum(prob, axis=(1, 2, 3)) + ops.sum(mask, axis=(1, 2, 3))
    dice = 1.0 - (2.0 * overlap + 1.0) / (total + 1.0)
    bce = ops.softplus(logits) - mask * logits
    return ops.mean(bce, axis=(1, 2, 3)) + dice
