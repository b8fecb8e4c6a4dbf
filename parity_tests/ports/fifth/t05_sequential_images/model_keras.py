import keras
from keras import layers

HEIGHT, WIDTH, CLASSES = 17, 20, 5


def build():
    """Weather pictures of a small camera, odd sizes throughout."""
    return keras.Sequential(
        [
            keras.Input((HEIGHT, WIDTH, 3), name="picture"),
            layers.Rescaling(1 / 64, offset=-2),
            layers.ZeroPadding2D(((1, 2), (2, 1))),
            layers.Conv2D(12, (4, 4), strides=2, name="stem"),
            layers.GroupNormalization(groups=3, name="stem_norm"),
            layers.PReLU(shared_axes=[1, 2], name="stem_slope"),
            layers.AveragePooling2D(3, strides=2, padding="same"),
            layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2, use_bias=False, name="spread"),
            layers.Conv2D(24, 1, groups=4, name="mix"),
            layers.BatchNormalization(momentum=0.9, scale=False, name="mix_norm"),
            layers.Activation("relu6"),
            layers.SpatialDropout2D(0.15),
            layers.Conv2D(16, 3, strides=2, padding="same", activation="softplus", name="last"),
            layers.Permute((2, 1, 3)),
            layers.Flatten(),
            layers.Dense(32, activation="hard_silu", name="hidden"),
            layers.Dropout(0.25),
            layers.Dense(CLASSES, name="classes"),
        ],
        name="weather",
    )
