import keras
from keras import layers

huber = keras.losses.Huber(delta=2.0)


def build():
    model = keras.Sequential(name="robust")
    model.add(keras.Input((12,), name="features"))
    for i, units in enumerate((40, 24)):
        model.add(layers.Dense(units, name=f"dense{i}"))
        model.add(layers.PReLU(alpha_initializer=keras.initializers.Constant(0.25), name=f"prelu{i}"))
        model.add(layers.LayerNormalization(epsilon=1e-5, name=f"norm{i}"))
    model.add(layers.Dense(1, name="price"))
    return model


def optimizer():
    return keras.optimizers.SGD(learning_rate=0.01, momentum=0.9, weight_decay=0.02)
