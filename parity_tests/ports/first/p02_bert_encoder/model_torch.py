"""The encoder with torch's own transformer layers, sequence first."""

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, vocabulary=120, length=20, dim=32, heads=4, hidden=64, depth=2, classes=4):
        super().__init__()
        self.token_embedding = nn.Embedding(vocabulary, dim)
        self.position_embedding = nn.Parameter(torch.randn(length, 1, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(
            dim,
            heads,
            hidden,
            dropout=0.0,
            activation="gelu",
            layer_norm_eps=1e-3,
            batch_first=False,
            norm_first=False,
        )
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(dim, classes)

    def forward(self, ids):
        padding = ids == 0
        x = self.token_embedding(ids.t()) + self.position_embedding[: ids.shape[1]]
        x = self.encoder(x, src_key_padding_mask=padding)  # (length, batch, dim)
        keep = (~padding).t().unsqueeze(-1).to(x.dtype)
        return self.head((x * keep).sum(0) / keep.sum(0))
