import torch
from torch import nn


def fourier(x):
    x = torch.fft.fft(x, dim=-1).real
    return torch.fft.fft(x, dim=-2).real


class FNetLayer(nn.Module):
    def __init__(self, d_model, d_ff, p):
        super().__init__()
        self.mix_norm = nn.LayerNorm(d_model)
        self.ff = nn.Sequential(nn.Linear(d_model, d_ff), nn.GELU(), nn.Linear(d_ff, d_model), nn.Dropout(p))
        self.ff_norm = nn.LayerNorm(d_model)

    def forward(self, x):
        x = self.mix_norm(x + fourier(x))
        return self.ff_norm(x + self.ff(x))


class Net(nn.Module):
    def __init__(self, vocab=60, max_len=20, d_model=32, d_ff=64, n_layers=2, n_classes=4):
        super().__init__()
        self.tok = nn.Embedding(vocab, d_model)
        self.pos = nn.Parameter(torch.zeros(max_len, d_model))
        self.norm = nn.LayerNorm(d_model)
        self.encoder = nn.Sequential(*[FNetLayer(d_model, d_ff, 0.1) for _ in range(n_layers)])
        self.head = nn.Sequential(nn.Linear(d_model, d_model), nn.Tanh(), nn.Linear(d_model, n_classes))

    def forward(self, tokens):
        x = self.norm(self.tok(tokens) + self.pos)
        return self.head(self.encoder(x)[:, 0])
