import torch
from torch import nn


class Intent(nn.Module):
    def __init__(self, vocab=40, length=14, d=24, heads=4, ff=48, depth=2, classes=5):
        super().__init__()
        self.scale = d**0.5
        self.token_embedding = nn.Embedding(vocab, d)
        self.position_embedding = nn.Parameter(torch.randn(length, d) * 0.02)
        layer = nn.TransformerEncoderLayer(
            d, heads, ff, dropout=0.0, activation="gelu", layer_norm_eps=1e-6, batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(d, classes)

    def forward(self, x):
        x = x.long()
        pad = x == 0
        h = self.token_embedding(x) * self.scale + self.position_embedding[: x.shape[1]]
        h = self.encoder(h, src_key_padding_mask=pad)
        h = h.masked_fill(pad.unsqueeze(-1), 0.0)
        pooled = h.sum(1) / (~pad).sum(1, keepdim=True)
        return self.head(pooled)


def build():
    return Intent()
