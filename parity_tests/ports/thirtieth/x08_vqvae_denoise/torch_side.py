"""Denoising VQ-VAE for waveforms, (B, T, 1) in and out."""

import torch.nn.functional as F
from torch import nn

LENGTH, CODES, DIM = 64, 16, 6
BETA = 0.25
DATA_VARIANCE = 0.4


class VectorQuantizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.codebook = nn.Embedding(CODES, DIM)
        nn.init.uniform_(self.codebook.weight, -0.5, 0.5)

    def forward(self, z):  # B, T, D
        flat = z.reshape(-1, DIM)
        w = self.codebook.weight
        d = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ w.t() + w.pow(2).sum(1)
        q = self.codebook(d.argmin(1)).view_as(z)
        codebook_loss = F.mse_loss(q.detach(), z)
        commit_loss = F.mse_loss(q, z.detach())
        loss = codebook_loss + BETA * commit_loss
        return z + (q - z).detach(), loss


class ResUnit(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c3 = nn.Conv1d(c, c, 3, padding=1, bias=False)
        self.c1 = nn.Conv1d(c, c, 1, bias=False)

    def forward(self, x):
        return x + self.c1(F.relu(self.c3(F.relu(x))))


class VQVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(1, 10, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv1d(10, 12, 4, stride=2, padding=1),
            ResUnit(12),
            nn.Conv1d(12, DIM, 1),
        )
        self.quantizer = VectorQuantizer()
        self.decoder = nn.Sequential(
            nn.Conv1d(DIM, 12, 3, padding=1),
            ResUnit(12),
            nn.ConvTranspose1d(12, 10, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose1d(10, 1, 4, stride=2, padding=1),
        )

    def run(self, x):
        z = self.encoder(x.transpose(1, 2)).transpose(1, 2)
        q, vq_loss = self.quantizer(z)
        return self.decoder(q.transpose(1, 2)).transpose(1, 2), vq_loss

    def forward(self, x):
        return self.run(x)[0]


def step(model, batch):
    x, y = batch
    out, vq_loss = model.run(x)
    return F.mse_loss(out, y) / DATA_VARIANCE + vq_loss


def build():
    return VQVAE()
