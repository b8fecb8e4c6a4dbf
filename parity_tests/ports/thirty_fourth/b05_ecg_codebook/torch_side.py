import torch
import torch.nn.functional as F
from torch import nn


class VectorQuantizerEMA(nn.Module):
    def __init__(self, codes, dim, decay=0.95, eps=1e-5):
        super().__init__()
        self.decay, self.eps = decay, eps
        codebook = torch.empty(codes, dim).uniform_(-1, 1)
        self.register_buffer("codebook", codebook)
        self.register_buffer("ema_count", torch.ones(codes))
        self.register_buffer("ema_sum", codebook.clone())

    @torch.no_grad()
    def _follow(self, flat, index):
        count = torch.bincount(index, minlength=len(self.codebook)).to(flat)
        total = torch.zeros_like(self.ema_sum).index_add_(0, index, flat)
        self.ema_count.mul_(self.decay).add_(count, alpha=1 - self.decay)
        self.ema_sum.mul_(self.decay).add_(total, alpha=1 - self.decay)
        n = self.ema_count.sum()
        smoothed = (self.ema_count + self.eps) * n / (n + len(self.codebook) * self.eps)
        self.codebook.copy_(self.ema_sum / smoothed.unsqueeze(1))

    def forward(self, z):  # B, D, T
        rows = z.transpose(1, 2)
        flat = rows.reshape(-1, rows.shape[-1])
        index = torch.cdist(flat, self.codebook, compute_mode="donot_use_mm_for_euclid_dist").argmin(dim=1)
        quantized = F.embedding(index, self.codebook).view_as(rows).transpose(1, 2)
        commitment = F.mse_loss(z, quantized.detach())
        if self.training:
            self._follow(flat.detach(), index)
        return z + (quantized - z).detach(), commitment


class BeatVQ(nn.Module):
    beta = 0.25

    def __init__(self, leads=2, codes=16, dim=6):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(leads, 16, 4, 2, 1),
            nn.ReLU(),
            nn.Conv1d(16, 24, 4, 2, 1),
            nn.ReLU(),
            nn.Conv1d(24, dim, 1),
        )
        self.quantizer = VectorQuantizerEMA(codes, dim)
        self.decoder = nn.Sequential(
            nn.ConvTranspose1d(dim, 16, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose1d(16, leads, 4, 2, 1),
        )

    def forward(self, beats):  # B, T, leads
        z, commitment = self.quantizer(self.encoder(beats.transpose(1, 2)))
        return self.decoder(z).transpose(1, 2), commitment


def step(model, batch):
    noisy, clean = batch
    restored, commitment = model(noisy)
    return F.mse_loss(restored, clean) + model.beta * commitment


def build():
    return BeatVQ()
