import keras
from keras import layers, ops

STRIDE, CLASSES, ALPHA, GAMMA = 4, 3, 0.25, 2.0


def conv_norm(x, filters, name, strides=1):
    x = layers.Conv2D(filters, 3, strides=strides, padding="same", use_bias=False, name=name)(x)
    x = layers.BatchNormalization(momentum=0.9, name=f"{name}_bn")(x)
    return layers.ReLU(name=f"{name}_relu")(x)


def build():
    image = keras.Input((32, 32, 1), name="image")
    c1 = conv_norm(image, 8, "c1", strides=2)
    c2 = conv_norm(c1, 16, "c2", strides=2)
    c3 = conv_norm(c2, 24, "c3", strides=2)
    top = layers.UpSampling2D(2, name="p3_up")(layers.Conv2D(16, 1, name="lateral3")(c3))
    p2 = layers.Add(name="p2")([layers.Conv2D(16, 1, name="lateral2")(c2), top])
    tower = layers.Conv2D(16, 3, padding="same", activation="relu", name="tower")
    shared = tower(tower(p2))
    heat = layers.Conv2D(CLASSES, 1, bias_initializer=keras.initializers.Constant(-2.0), name="heat")(shared)
    size = layers.Conv2D(4, 1, name="ltrb")(shared)
    size = layers.Lambda(lambda t: STRIDE * ops.softplus(t), name="box")(size)
    return keras.Model(image, {"heat": heat, "box": size})


def focal(y_true, y_pred):
    """Focal loss of a one-hot map, normalised by the number of objects in the picture."""
    ce = ops.softplus(y_pred) - y_true * y_pred
    p = ops.sigmoid(y_pred)
    p_t = y_true * p + (1 - y_true) * (1 - p)
    alpha_t = y_true * ALPHA + (1 - y_true) * (1 - ALPHA)
    total = ops.sum(alpha_t * (1 - p_t) ** GAMMA * ce, axis=(1, 2, 3))
    return total / ops.maximum(ops.sum(y_true, axis=(1, 2, 3)), 1.0)


def giou(y_true, y_pred):
    """Generalised IoU of (left, top, right, bottom) distances; cells without an object have zeros."""
    inside = ops.cast(ops.max(y_true, axis=-1) > 0, y_pred.dtype)
    l, t, r, b = ops.unstack(y_pred, axis=-1)
    gl, gt, gr, gb = ops.unstack(y_true, axis=-1)
    area, goal = (l + r) * (t + b), (gl + gr) * (gt + gb)
    width = ops.minimum(l, gl) + ops.minimum(r, gr)
    height = ops.minimum(t, gt) + ops.minimum(b, gb)
    overlap = width * height
    union = area + goal - overlap
    hull = (ops.maximum(l, gl) + ops.maximum(r, gr)) * (ops.maximum(t, gt) + ops.maximum(b, gb))
    value = 1 - overlap / (union + 1e-7) + (hull - union) / (hull + 1e-7)
    return ops.sum(value * inside, axis=(1, 2)) / ops.maximum(ops.sum(inside, axis=(1, 2)), 1.0)
