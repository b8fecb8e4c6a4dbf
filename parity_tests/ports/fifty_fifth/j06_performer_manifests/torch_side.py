"""Causal Performer over manifests; layers are configured, then called."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu

CONFIG = {
    "vocabulary_size": 36,
    "sequence_length": 22,
    "units": 24,
    "num_heads": 3,
    "num_layers": 4,
    "num_features": 12,
    "mlp_units": 48,
}


def dense(input_dim, units, use_bias=True):
    layer = nn.Linear(input_dim, units, bias=use_bias)
    nn.init.xavier_uniform_(layer.weight)
    if use_bias:
        nn.init.zeros_(layer.bias)
    return layer


def orthogonal_features(num_features, key_dim, seed):
    generator = np.random.default_rng(seed)
    matrix = np.zeros((num_features, key_dim))
    for start in range(0, num_features, key_dim):
        rotation, _ = np.linalg.qr(generator.standard_normal((key_dim, key_dim)))
        stop = min(start + key_dim, num_features)
        matrix[start:stop] = rotation.T[: stop - start]
    lengths = np.sqrt((generator.standard_normal((num_features, key_dim)) ** 2).sum(-1, keepdims=True))
    return torch.tensor(matrix * lengths, dtype=torch.float32).T.contiguous()


class FavorAttention(nn.Module):
    def __init__(self, num_heads, key_dim, num_features, epsilon=1e-4, seed=None):
        super().__init__()
        units = num_heads * key_dim
        self.num_heads, self.key_dim, self.epsilon = num_heads, key_dim, epsilon
        self.query_dense = dense(units, units, use_bias=False)
        self.key_dense = dense(units, units, use_bias=False)
        self.value_dense = dense(units, units, use_bias=False)
        self.output_dense = dense(units, units)
        self.register_buffer("features", orthogonal_features(num_features, key_dim, seed))

    def split_heads(self, tensor):
        return tensor.reshape(*tensor.shape[:2], self.num_heads, self.key_dim)

    def feature_map(self, tensor, axes):
        # tensor: (batch, steps, heads, key_dim)
        tensor = tensor / math.sqrt(math.sqrt(self.key_dim))
        exponent = tensor @ self.features
        stabilizer = exponent.detach().amax(dim=axes, keepdim=True)
        exponent = exponent - 0.5 * tensor.square().sum(-1, keepdim=True) - stabilizer
        return (exponent.exp() + self.epsilon) / math.sqrt(self.features.shape[1])

    def call(self, inputs):
        query = self.feature_map(self.split_heads(self.query_dense(inputs)), axes=-1)
        key = self.feature_map(self.split_heads(self.key_dense(inputs)), axes=(1, 3))
        value = self.split_heads(self.value_dense(inputs))
        scores = torch.einsum("bqhm,bkhm->bhqk", query, key).tril()
        scores = scores / scores.sum(-1, keepdim=True)
        outputs = torch.einsum("bhqk,bkhd->bqhd", scores, value)
        return self.output_dense(outputs.reshape(inputs.shape))

    forward = call


class FeedForward(nn.Module):
    def __init__(self, units, hidden_units):
        super().__init__()
        self.dense_1 = dense(units, hidden_units)
        self.dense_2 = dense(hidden_units, units)

    def call(self, inputs):
        return self.dense_2(gelu(self.dense_1(inputs), approximate="tanh"))

    forward = call


class PerformerBlock(nn.Module):
    def __init__(self, units, num_heads, num_features, mlp_units, seed):
        super().__init__()
        self.scales = nn.Parameter(torch.full((2,), 0.3))
        self.attention_norm = nn.LayerNorm(units)
        self.feedforward_norm = nn.LayerNorm(units)
        self.attention = FavorAttention(num_heads, units // num_heads, num_features, seed=seed)
        self.feedforward = FeedForward(units, mlp_units)

    def call(self, inputs):
        attended = inputs + self.scales[0] * self.attention(self.attention_norm(inputs))
        return attended + self.scales[1] * self.feedforward(self.feedforward_norm(attended))

    forward = call


class TiedTokenEmbedding(nn.Module):
    def __init__(self, vocabulary_size, sequence_length, units):
        super().__init__()
        self.output_bias = nn.Parameter(torch.zeros(vocabulary_size))
        self.positions = nn.Parameter(0.1 * torch.randn(1, sequence_length, units))
        self.embeddings = nn.Parameter(0.1 * torch.randn(vocabulary_size, units))

    def call(self, inputs, reverse=False):
        if reverse:
            return inputs @ self.embeddings.T + self.output_bias
        embedded = self.embeddings[inputs.long()] * math.sqrt(self.embeddings.shape[1])
        return embedded + self.positions[:, : inputs.shape[1]]

    forward = call


class Performer(nn.Module):
    def __init__(
        self, vocabulary_size, sequence_length, units, num_heads, num_layers, num_features, mlp_units
    ):
        super().__init__()
        self.embedding = TiedTokenEmbedding(vocabulary_size, sequence_length, units)
        self.final_norm = nn.LayerNorm(units)
        self.transformer_layers = nn.ModuleList(
            [
                PerformerBlock(units, num_heads, num_features, mlp_units, seed=100 + i)
                for i in range(num_layers)
            ]
        )

    def call(self, inputs):
        outputs = self.embedding(inputs)
        for layer in self.transformer_layers:
            outputs = layer(outputs)
        return self.embedding(self.final_norm(outputs), reverse=True)

    forward = call


def loss(outputs, targets):
    targets = targets.long()
    per_token = cross_entropy(
        outputs.transpose(1, 2), targets, ignore_index=0, label_smoothing=0.05, reduction="none"
    )
    return torch.mean(per_token.sum(1) / (targets != 0).sum(1))


def build():
    return Performer(**CONFIG)
