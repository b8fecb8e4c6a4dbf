import torch
from torch import nn
from torch.nn import functional as F


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, code):
        return z + (code - z)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class VQ(nn.Module):
    def __init__(self, channels=4, hidden=12, latent=6, codes=10, length=16):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv1d(channels, hidden, 4, stride=2, padding=1), nn.Tanh(), nn.Conv1d(hidden, latent, 1)
        )
        self.codebook = nn.Embedding(codes, latent)
        self.dec = nn.Sequential(
            nn.ConvTranspose1d(latent, hidden, 4, stride=2, padding=1),
            nn.Tanh(),
            nn.Conv1d(hidden, channels, 3, padding=1),
        )
        self.classes = nn.Linear(length // 2 * latent, 3)

    def quantise(self, z):
        with torch.no_grad():
            index = (z.unsqueeze(-2) - self.codebook.weight).square().sum(-1).argmin(-1)
        return self.codebook(index)

    def encode(self, x):
        z = self.enc(x.transpose(1, 2)).transpose(1, 2)
        return z, self.quantise(z)

    def decode(self, code):
        return self.dec(code.transpose(1, 2)).transpose(1, 2), self.classes(code.flatten(1))

    def forward(self, x):
        return self.decode(StraightThrough.apply(*self.encode(x)))


def step(model, batch):
    x, y = batch
    z, code = model.encode(x)
    signal, logits = model.decode(StraightThrough.apply(z, code))
    losses = {
        "reconstruction": F.mse_loss(signal, x),
        "codebook": F.mse_loss(code, z.detach()),
        "commitment": 0.25 * F.mse_loss(z, code.detach()),
        "classes": 0.5 * F.cross_entropy(logits, y.reshape(-1).long()),
    }
    return {"loss": sum(losses.values()), **losses}


def build():
    return VQ()
