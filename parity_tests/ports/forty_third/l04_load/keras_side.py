import keras
import numpy as np
from keras import layers as L
from keras import ops

HIST, HORIZON = 48, 12
N_HIST, N_FUT = 4, 3
REGIONS, TARIFFS, N_STATIC = 6, 4, 3
QUANTILES = np.array([0.1, 0.5, 0.9], dtype=np.float32)
W = 16


@keras.saving.register_keras_serializable("load")
class WarmupRsqrt(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, peak=4e-3, warmup=10):
        self.peak, self.warmup = peak, warmup

    def __call__(self, step):
        step = ops.cast(step, "float32") + 1.0
        return self.peak * ops.minimum(step / self.warmup, ops.sqrt(self.warmup / step))

    def get_config(self):
        return {"peak": self.peak, "warmup": self.warmup}


def gated_residual(x, context, name):
    h = L.Dense(W, activation="elu", name=f"{name}_in")(L.Concatenate()([x, context]))
    value = L.Dense(W, name=f"{name}_value")(h)
    gate = L.Dense(W, activation="sigmoid", name=f"{name}_gate")(h)
    return L.LayerNormalization(name=f"{name}_norm")(L.Add()([x, L.Multiply()([value, gate])]))


def build():
    history = L.Input((HIST, N_HIST), name="history")
    future = L.Input((HORIZON, N_FUT), name="future")
    scat = L.Input((2,), dtype="int32", name="static_cat")
    snum = L.Input((N_STATIC,), name="static_num")

    region = L.Embedding(REGIONS, 4, name="region")(scat[:, 0])
    tariff = L.Embedding(TARIFFS, 3, name="tariff")(scat[:, 1])
    static = L.Dense(W, activation="elu", name="static")(L.Concatenate()([region, tariff, snum]))

    # past, modulated by what does not change
    past = L.Dense(W, name="past_in")(history)
    scale = L.Dense(W, name="film_scale")(static)
    offset = L.Dense(W, name="film_offset")(static)
    past = L.Activation("tanh")(past * (1.0 + L.Reshape((1, W))(scale)) + L.Reshape((1, W))(offset))
    encoded, state = L.GRU(W, return_sequences=True, return_state=True, name="encoder")(
        past, initial_state=L.Dense(W, activation="tanh", name="state0")(static)
    )

    known = L.Dense(W, activation="tanh", name="future_in")(future)
    context = L.RepeatVector(HORIZON)(static)
    decoded = L.GRU(W, return_sequences=True, name="decoder")(
        L.Concatenate()([known, context]), initial_state=state
    )
    attended = L.Attention(use_scale=True, name="attention")([decoded, encoded])
    x = gated_residual(decoded, L.Concatenate()([attended, context]), "grn")

    middle = L.Dense(1, name="q50")(x) + history[:, HIST - 24 : HIST - 24 + HORIZON, :1]
    down = L.Dense(1, activation="softplus", name="below")(x)
    up = L.Dense(1, activation="softplus", name="above")(x)
    out = L.Concatenate(name="load")([middle - down, middle, middle + up])
    return keras.Model({"history": history, "future": future, "static_cat": scat, "static_num": snum}, out)


def pinball(y_true, y_pred):
    e = ops.expand_dims(ops.cast(y_true, y_pred.dtype), -1) - y_pred
    return ops.mean(ops.maximum(QUANTILES * e, (QUANTILES - 1.0) * e), axis=(1, 2))


def make_optimizer():
    return keras.optimizers.Adam(WarmupRsqrt(), beta_2=0.99, epsilon=1e-6)
