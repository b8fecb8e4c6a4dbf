import torch
import torch.nn as nn
import torch.nn.functional as F


class Quantize(nn.Module):
    def __init__(self, n_codes, dim, beta=0.25):
        super().__init__()
        self.beta = beta
        self.codebook = nn.Embedding(n_codes, dim)
        self.codebook.weight.data.uniform_(-0.5, 0.5)

    def forward(self, z):  # B T D
        with torch.no_grad():
            d = (z.unsqueeze(-2) - self.codebook.weight).pow(2).sum(-1)
            codes = d.argmin(-1)
        zq = self.codebook(codes)
        vq_loss = F.mse_loss(zq.detach(), z) + self.beta * F.mse_loss(zq, z.detach())
        zq = z + (zq - z).detach()
        return zq, vq_loss


class VQVAE(nn.Module):
    def __init__(self, channels=3, latent=8, codes=12):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(channels, 16, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv1d(16, 24, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv1d(24, latent, 1),
        )
        self.quantize = Quantize(codes, latent)
        self.decoder = nn.Sequential(
            nn.Conv1d(latent, 24, 3, padding=1),
            nn.ReLU(),
            nn.Upsample(scale_factor=2),
            nn.Conv1d(24, 16, 3, padding=1),
            nn.ReLU(),
            nn.Upsample(scale_factor=2),
            nn.Conv1d(16, channels, 3, padding=1),
        )

    def forward(self, x):
        z = self.encoder(x.transpose(1, 2)).transpose(1, 2)
        zq, vq_loss = self.quantize(z)
        recon = self.decoder(zq.transpose(1, 2)).transpose(1, 2)
        return recon, vq_loss


def build():
    return VQVAE()


def loss(outputs, targets):
    recon, vq_loss = outputs
    return F.mse_loss(recon, targets) + vq_loss
