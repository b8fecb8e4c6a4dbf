import keras
from keras import layers


def conv_bn(x, filters, width, dilation):
    x = layers.Conv1D(filters, width, padding="causal", dilation_rate=dilation, use_bias=False)(x)
    return layers.BatchNormalization(momentum=0.9)(x)


def build():
    leads = keras.Input((48, 2), name="leads")
    x = layers.ReLU()(conv_bn(leads, 10, 5, 1))
    for dilation in (2, 4):
        y = layers.ReLU()(conv_bn(x, 10, 3, dilation))
        y = conv_bn(y, 10, 1, 1)
        x = layers.ReLU()(layers.Add()([x, y]))
    avg = layers.GlobalAveragePooling1D()(x)
    top = layers.GlobalMaxPooling1D()(x)
    x = layers.Concatenate()([avg, top])
    x = layers.Dense(12, activation="relu")(x)
    return keras.Model(leads, layers.Dense(1, name="afib")(x))
