from keras import Input, Model, layers


def dense_layer(x, growth, name):
    y = layers.BatchNormalization(name=name + "_bn1")(x)
    y = layers.Activation("relu", name=name + "_relu1")(y)
    y = layers.Conv2D(4 * growth, 1, use_bias=False, name=name + "_conv1")(y)
    y = layers.BatchNormalization(name=name + "_bn2")(y)
    y = layers.Activation("relu", name=name + "_relu2")(y)
    y = layers.Conv2D(growth, 3, padding="same", use_bias=False, name=name + "_conv2")(y)
    return layers.Concatenate(name=name + "_concat")([x, y])


def build(growth=8, depth=(3, 3), classes=10):
    inputs = Input((16, 16, 3), name="x")
    x = layers.Conv2D(16, 3, padding="same", use_bias=False, name="stem")(inputs)
    for b, n in enumerate(depth, 1):
        for i in range(1, n + 1):
            x = dense_layer(x, growth, f"block{b}_{i}")
        if b < len(depth):
            x = layers.BatchNormalization(name=f"trans{b}_bn")(x)
            x = layers.ReLU(name=f"trans{b}_relu")(x)
            x = layers.Conv2D(x.shape[-1] // 2, 1, use_bias=False, name=f"trans{b}_conv")(x)
            x = layers.AveragePooling2D(2, name=f"trans{b}_pool")(x)
    x = layers.BatchNormalization(name="final_bn")(x)
    x = layers.ReLU(name="final_relu")(x)
    x = layers.GlobalAveragePooling2D(name="avg_pool")(x)
    return Model(inputs, layers.Dense(classes, name="predictions")(x), name="densenet")
