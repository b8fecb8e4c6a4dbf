"""Small C3D-like clip classifier, assembled from a config."""

import keras
from keras import layers

CONFIG = {
    "clip_shape": (6, 12, 12, 1),
    "stages": [
        {"filters": 8, "kernel": (3, 3, 3), "pool": (1, 2, 2)},
        {"filters": 12, "kernel": (3, 3, 3), "pool": (2, 2, 2)},
        {"filters": 16, "kernel": (3, 1, 1), "pool": None},
    ],
    "groups": 4,
    "hidden": 24,
    "num_classes": 4,
}

TRAIN = {"peak_lr": 2e-3, "warmup": 5, "total": 35, "weight_decay": 0.05}


def make_model(cfg):
    clip = keras.Input(cfg["clip_shape"], name="clip")
    x = layers.Rescaling(1.0 / 127.5, offset=-1.0)(clip)
    for i, stage in enumerate(cfg["stages"], 1):
        x = layers.Conv3D(stage["filters"], stage["kernel"], padding="same", name=f"conv{i}")(x)
        x = layers.GroupNormalization(groups=cfg["groups"], name=f"gn{i}")(x)
        x = layers.Activation("silu", name=f"act{i}")(x)
        if stage["pool"]:
            x = layers.MaxPooling3D(stage["pool"], name=f"pool{i}")(x)
    x = layers.GlobalAveragePooling3D(name="avg")(x)
    x = layers.Dense(cfg["hidden"], activation="relu", name="fc1")(x)
    out = layers.Dense(cfg["num_classes"], name="fc2")(x)
    return keras.Model(clip, out, name="c3d_tiny")


def build():
    return make_model(CONFIG)


def make_optimizer():
    lr = keras.optimizers.schedules.CosineDecay(
        initial_learning_rate=0.0,
        decay_steps=TRAIN["total"] - TRAIN["warmup"],
        warmup_target=TRAIN["peak_lr"],
        warmup_steps=TRAIN["warmup"],
    )
    opt = keras.optimizers.AdamW(lr, weight_decay=TRAIN["weight_decay"])
    opt.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    return opt
