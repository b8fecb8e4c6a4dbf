import keras
from keras import layers


def stage(x, filters, stride, name):
    x = layers.Conv2D(filters, 3, strides=stride, padding="same", use_bias=False, name=f"{name}_conv")(x)
    x = layers.BatchNormalization(momentum=0.9, epsilon=1e-3, name=f"{name}_bn")(x)
    return layers.ReLU(name=f"{name}_relu")(x)


def build(classes=5, width=8):
    inputs = keras.Input((16, 16, 3), name="x")
    c2 = stage(inputs, 6, 2, "c2")
    c3 = stage(c2, 10, 2, "c3")
    c4 = stage(c3, 14, 2, "c4")

    m4 = layers.Conv2D(width, 1, name="lateral4")(c4)
    up4 = layers.UpSampling2D(2)(m4)
    m3 = layers.Add()([layers.Conv2D(width, 1, name="lateral3")(c3), up4])
    up3 = layers.UpSampling2D(2)(m3)
    m2 = layers.Add()([layers.Conv2D(width, 1, name="lateral2")(c2), up3])

    p4 = layers.Conv2D(width, 3, padding="same", name="smooth4")(m4)
    p3 = layers.Conv2D(width, 3, padding="same", name="smooth3")(m3)
    p2 = layers.Conv2D(width, 3, padding="same", name="smooth2")(m2)

    heat = layers.Conv2D(2, 1, name="heat_head")(layers.ReLU()(p2))
    pooled = layers.Concatenate()([layers.GlobalAveragePooling2D()(p) for p in (p2, p3, p4)])
    label = layers.Dense(classes, name="label_head")(pooled)
    return keras.Model(inputs, {"label": label, "heat": heat})
