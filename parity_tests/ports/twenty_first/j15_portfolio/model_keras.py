import keras
from keras import layers, ops

DAYS, ASSETS, FEATURES = 12, 5, 4
FEE = 0.1


def build():
    panel = keras.Input((DAYS, ASSETS, FEATURES), name="panel")
    x = layers.Permute((2, 1, 3))(panel)
    x = ops.reshape(x, (-1, DAYS, FEATURES))
    x = layers.LSTM(10, return_sequences=True, name="lstm")(x)
    score = layers.Dense(1, name="score")(x)
    score = ops.reshape(score, (-1, ASSETS, DAYS))
    hold = layers.Softmax(axis=-1)(layers.Permute((2, 1))(score))
    return keras.Model(panel, hold)


def negative_sharpe(ret, hold):
    before = ops.pad(hold[:, :-1], ((0, 0), (1, 0), (0, 0)))
    traded = ops.sum(ops.abs(hold - before), axis=-1)
    net = ops.sum(hold * ret, axis=-1) - FEE * traded
    return -ops.mean(net, axis=1) / (ops.std(net, axis=1) + 1e-4)
