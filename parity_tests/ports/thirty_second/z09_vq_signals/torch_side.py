import torch.nn as nn
import torch.nn.functional as F


class Codebook(nn.Module):
    def __init__(self, n_codes, dim, commitment_cost=0.25):
        super().__init__()
        self.embedding = nn.Embedding(n_codes, dim)
        nn.init.uniform_(self.embedding.weight, -0.5, 0.5)
        self.commitment_cost = commitment_cost

    def forward(self, z):
        w = self.embedding.weight
        d = z.pow(2).sum(-1, keepdim=True) + w.pow(2).sum(1) - 2 * z @ w.t()
        q = self.embedding(d.argmin(-1))
        e_latent_loss = F.mse_loss(q, z.detach())
        q_latent_loss = F.mse_loss(q.detach(), z)
        vq = q_latent_loss + self.commitment_cost * e_latent_loss
        return z + (q - z).detach(), vq


class VQAutoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv1d(3, 12, 4, 2, 1), nn.ReLU(), nn.Conv1d(12, 12, 4, 2, 1), nn.ReLU(), nn.Conv1d(12, 6, 1)
        )
        self.codebook = Codebook(12, 6)
        self.dec = nn.Sequential(
            nn.ConvTranspose1d(6, 12, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose1d(12, 12, 4, 2, 1),
            nn.ReLU(),
            nn.Conv1d(12, 3, 3, padding=1),
        )

    def forward(self, x):
        z = self.enc(x.transpose(1, 2)).transpose(1, 2)
        q, vq_loss = self.codebook(z)
        recon = self.dec(q.transpose(1, 2)).transpose(1, 2)
        return {"recon": recon, "vq_loss": vq_loss}


def build():
    return VQAutoencoder()


def loss(outputs, targets):
    return F.mse_loss(outputs["recon"], targets) + outputs["vq_loss"]
