# Performer language model (FAVOR+, causal) over the item codes of freight manifests.
import math

import keras
import numpy as np
from keras import layers, ops

VOCAB, SEQLEN, DIM, HEADS, DEPTH, NB_FEATURES = 36, 22, 24, 3, 4, 12


class Module(layers.Layer):
    def call(self, x):
        return self.forward(x)

    def register_buffer(self, name, value):
        init = lambda shape, dtype=None: ops.cast(value, dtype)
        setattr(self, name, self.add_weight(name=name, shape=value.shape, initializer=init, trainable=False))


class Linear(Module):
    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        bound = 1 / math.sqrt(in_features)
        init = keras.initializers.RandomUniform(-bound, bound)
        self.weight = self.add_weight(name="weight", shape=(out_features, in_features), initializer=init)
        self.bias = self.add_weight(name="bias", shape=(out_features,), initializer=init) if bias else None

    def forward(self, x):
        x = ops.matmul(x, ops.transpose(self.weight))
        return x if self.bias is None else x + self.bias


class LayerNorm(Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.weight = self.add_weight(name="weight", shape=(dim,), initializer="ones")
        self.bias = self.add_weight(name="bias", shape=(dim,), initializer="zeros")
        self.eps = eps

    def forward(self, x):
        mu = ops.mean(x, axis=-1, keepdims=True)
        var = ops.mean(ops.square(x - mu), axis=-1, keepdims=True)
        return (x - mu) * ops.rsqrt(var + self.eps) * self.weight + self.bias


class Sequential(Module):
    def __init__(self, *modules):
        super().__init__()
        self.modules = list(modules)

    def forward(self, x):
        for m in self.modules:
            x = m(x)
        return x


class GELU(Module):
    def forward(self, x):
        return ops.gelu(x, approximate=True)


def gaussian_orthogonal_matrix(rows, cols, seed):
    rng = np.random.default_rng(seed)
    blocks = []
    while sum(len(b) for b in blocks) < rows:
        q, _ = np.linalg.qr(rng.standard_normal((cols, cols)))
        blocks.append(q.T)
    q = np.concatenate(blocks)[:rows]
    norms = np.linalg.norm(rng.standard_normal((rows, cols)), axis=1)
    return (q * norms[:, None]).astype("float32")


def softmax_kernel(data, projection, is_query, eps=1e-4):
    # data: (N, H, L, D)
    d = data.shape[-1]
    data = data * d**-0.25
    dash = ops.einsum("nhld,md->nhlm", data, projection)
    diag = ops.sum(ops.square(data), axis=-1, keepdims=True) / 2
    amax = ops.max(dash, axis=-1 if is_query else (-2, -1), keepdims=True)
    return projection.shape[0] ** -0.5 * (ops.exp(dash - diag - ops.stop_gradient(amax)) + eps)


def causal_linear_attention(q, k, v):
    z = ops.cumsum(k, axis=-2)
    context = ops.cumsum(ops.expand_dims(k, -1) * ops.expand_dims(v, -2), axis=2)
    denom = ops.einsum("nhlm,nhlm->nhl", q, z)
    out = ops.einsum("nhlm,nhlmd->nhld", q, context)
    return out / ops.expand_dims(denom, -1)


class SelfAttention(Module):
    def __init__(self, dim, heads, nb_features, seed):
        super().__init__()
        self.heads, self.dim_head = heads, dim // heads
        self.register_buffer(
            "projection_matrix", gaussian_orthogonal_matrix(nb_features, self.dim_head, seed)
        )
        self.to_qkv = Linear(dim, 3 * dim, bias=False)
        self.to_out = Linear(dim, dim)

    def forward(self, x):
        _, l, c = x.shape
        qkv = ops.reshape(self.to_qkv(x), (-1, l, 3, self.heads, self.dim_head))
        q, k, v = ops.unstack(ops.transpose(qkv, (2, 0, 3, 1, 4)), 3, axis=0)
        q = softmax_kernel(q, self.projection_matrix, is_query=True)
        k = softmax_kernel(k, self.projection_matrix, is_query=False)
        out = causal_linear_attention(q, k, v)
        out = ops.reshape(ops.transpose(out, (0, 2, 1, 3)), (-1, l, c))
        return self.to_out(out)


class ReZero(Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn
        self.g = self.add_weight(name="g", shape=(), initializer=keras.initializers.Constant(0.3))

    def forward(self, x):
        return x + self.g * self.fn(x)


class PerformerLM(keras.Model):
    def __init__(self):
        super().__init__()
        std = 0.1
        normal = keras.initializers.RandomNormal(stddev=std)
        self.token_emb = self.add_weight(name="token_emb", shape=(VOCAB, DIM), initializer=normal)
        self.pos_emb = self.add_weight(name="pos_emb", shape=(SEQLEN, DIM), initializer=normal)
        self.layers_ = []
        for i in range(DEPTH):
            attn = SelfAttention(DIM, HEADS, NB_FEATURES, seed=100 + i)
            ff = Sequential(Linear(DIM, 2 * DIM), GELU(), Linear(2 * DIM, DIM))
            self.layers_.append(
                Sequential(ReZero(Sequential(LayerNorm(DIM), attn)), ReZero(Sequential(LayerNorm(DIM), ff)))
            )
        self.norm = LayerNorm(DIM)
        self.to_logits_bias = self.add_weight(name="to_logits_bias", shape=(VOCAB,), initializer="zeros")

    def call(self, items):
        x = ops.take(self.token_emb, items, axis=0) * math.sqrt(DIM)
        x = x + self.pos_emb[None, : items.shape[1]]
        for layer in self.layers_:
            x = layer(x)
        x = self.norm(x)
        return ops.matmul(x, ops.transpose(self.token_emb)) + self.to_logits_bias


def loss(targets, outputs, smoothing=0.05):
    """Cross-entropy over the items of each manifest; 0 is padding."""
    logp = ops.log_softmax(outputs, axis=-1)
    nll = -ops.squeeze(ops.take_along_axis(logp, ops.expand_dims(targets, -1), axis=-1), -1)
    ce = (1 - smoothing) * nll - smoothing * ops.mean(logp, axis=-1)
    mask = ops.cast(ops.not_equal(targets, 0), ce.dtype)
    return ops.sum(ce * mask, axis=-1) / ops.sum(mask, axis=-1)


def build():
    model = PerformerLM()
    model(np.ones((1, SEQLEN), dtype="int32"))
    return model
