"""Weld seam inspection: feature pyramid with two heads.

Outputs: `pores` (N, 1), the number of pores (scaled), and `defect` (N, 4),
logits of the defect class.
"""

import keras
from keras import layers

SIZE, WIDTH, N_CLASSES = 24, 16, 4


def down(x, filters, name):
    """Halves the resolution."""
    x = layers.ZeroPadding2D(1, name=name + "_pad")(x)
    x = layers.Conv2D(filters, 3, strides=2, name=name + "_conv")(x)
    return layers.LeakyReLU(negative_slope=0.1, name=name + "_act")(x)


def merge(fine, coarse, name):
    """Adds the coarse level to the lateral projection of the finer one."""
    lateral = layers.Conv2D(WIDTH, 1, name=name + "_lateral")(fine)
    coarse = layers.UpSampling2D(2, interpolation="nearest", name=name + "_up")(coarse)
    x = layers.Add(name=name + "_add")([lateral, coarse])
    # takes the blocks of the nearest neighbour upsampling out again
    return layers.AveragePooling2D(3, strides=1, padding="same", name=name + "_smooth")(x)


def build():
    seam = keras.Input((SIZE, SIZE, 1), name="seam")
    c1 = down(seam, 10, "c1")
    c2 = down(c1, 14, "c2")
    c3 = down(c2, 18, "c3")

    p3 = layers.Conv2D(WIDTH, 1, name="p3_lateral")(c3)
    p2 = merge(c2, p3, "p2")
    p1 = merge(c1, p2, "p1")

    density = layers.Conv2D(8, 3, padding="same", activation="relu", name="density1")(p1)
    density = layers.Conv2D(1, 1, activation="softplus", name="density2")(density)
    pores = layers.GlobalAveragePooling2D(name="pores")(density)

    pooled = [layers.GlobalMaxPooling2D(name=f"max{i}")(p) for i, p in enumerate((p1, p2, p3), start=1)]
    x = layers.Concatenate(name="levels")(pooled)
    x = layers.Dense(20, name="defect_hidden")(x)
    x = layers.LeakyReLU(negative_slope=0.1, name="defect_act")(x)
    defect = layers.Dense(N_CLASSES, name="defect")(x)
    return keras.Model(seam, {"pores": pores, "defect": defect}, name="weld_fpn")
