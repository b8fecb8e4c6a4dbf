import keras
from keras import layers, ops


def shifted(x):
    return ops.pad(x[:, :-1], ((0, 0), (1, 0), (0, 0)))


class TimeMix(layers.Layer):
    def __init__(self, dim, **kwargs):
        super().__init__(**kwargs)
        self.key = layers.Dense(dim, use_bias=False)
        self.value = layers.Dense(dim, use_bias=False)
        self.receptance = layers.Dense(dim, use_bias=False)
        self.output_projection = layers.Dense(dim, use_bias=False)

    def build(self, shape):
        dim = shape[-1]
        uniform = keras.initializers.RandomUniform(0.0, 1.0)
        self.mix_k = self.add_weight(shape=(dim,), initializer=uniform, name="mix_k")
        self.mix_v = self.add_weight(shape=(dim,), initializer=uniform, name="mix_v")
        self.mix_r = self.add_weight(shape=(dim,), initializer=uniform, name="mix_r")
        self.decay = self.add_weight(shape=(dim,), initializer="random_normal", name="decay")
        self.bonus = self.add_weight(shape=(dim,), initializer="random_normal", name="bonus")
        for layer in (self.key, self.value, self.receptance, self.output_projection):
            layer.build(shape)

    def call(self, x):
        last = shifted(x)
        k = self.key(x * self.mix_k + last * (1 - self.mix_k))
        v = self.value(x * self.mix_v + last * (1 - self.mix_v))
        r = ops.sigmoid(self.receptance(x * self.mix_r + last * (1 - self.mix_r)))
        fade = ops.exp(-ops.exp(self.decay))
        top = bottom = ops.zeros_like(k[:, 0])
        outputs = []
        for t in range(x.shape[1]):
            now = ops.exp(self.bonus + k[:, t])
            outputs.append((top + now * v[:, t]) / (bottom + now))
            top = fade * top + ops.exp(k[:, t]) * v[:, t]
            bottom = fade * bottom + ops.exp(k[:, t])
        return self.output_projection(r * ops.stack(outputs, axis=1))


class ChannelMix(layers.Layer):
    def __init__(self, dim, hidden, **kwargs):
        super().__init__(**kwargs)
        self.key = layers.Dense(hidden, use_bias=False)
        self.receptance = layers.Dense(dim, use_bias=False)
        self.value = layers.Dense(dim, use_bias=False)

    def build(self, shape):
        uniform = keras.initializers.RandomUniform(0.0, 1.0)
        self.mix_k = self.add_weight(shape=(shape[-1],), initializer=uniform, name="mix_k")
        self.mix_r = self.add_weight(shape=(shape[-1],), initializer=uniform, name="mix_r")
        self.key.build(shape)
        self.receptance.build(shape)
        self.value.build((*shape[:-1], self.key.units))

    def call(self, x):
        last = shifted(x)
        k = ops.square(ops.relu(self.key(x * self.mix_k + last * (1 - self.mix_k))))
        return ops.sigmoid(self.receptance(x * self.mix_r + last * (1 - self.mix_r))) * self.value(k)


class LanguageModel(keras.Model):
    def __init__(self, vocabulary=19, dim=14, depth=2):
        super().__init__()
        self.embed = layers.Embedding(vocabulary, dim)
        self.norms1 = [layers.LayerNormalization(epsilon=1e-5, name=f"ln1_{i}") for i in range(depth)]
        self.norms2 = [layers.LayerNormalization(epsilon=1e-5, name=f"ln2_{i}") for i in range(depth)]
        self.time = [TimeMix(dim, name=f"time_{i}") for i in range(depth)]
        self.channel = [ChannelMix(dim, 2 * dim, name=f"channel_{i}") for i in range(depth)]
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="ln_out")

    def call(self, tokens):
        x = self.embed(tokens)
        for norm1, time, norm2, channel in zip(self.norms1, self.time, self.norms2, self.channel):
            x = x + time(norm1(x))
            x = x + channel(norm2(x))
        return ops.matmul(self.norm(x), ops.transpose(self.embed.embeddings))


def build():
    model = LanguageModel()
    model(ops.zeros((1, 12), dtype="int32"))
    return model
