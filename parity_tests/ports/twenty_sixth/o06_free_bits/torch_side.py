import torch
import torch.nn.functional as F
from torch import nn

PIXELS, LATENT = 64, 6
FREE_BITS = 0.08


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(PIXELS, 40), nn.SiLU(), nn.Linear(40, 24), nn.SiLU())
        self.posterior = nn.Linear(24, 2 * LATENT)
        self.decoder = nn.Sequential(
            nn.Linear(LATENT, 24), nn.SiLU(), nn.Linear(24, 40), nn.SiLU(), nn.Linear(40, PIXELS)
        )

    def forward(self, x, eps):
        mu, logvar = self.posterior(self.encoder(x)).chunk(2, dim=1)
        logvar = logvar.clamp(-6.0, 4.0)
        std = logvar.mul(0.5).exp()
        logits = self.decoder(torch.addcmul(mu, std, eps))
        return torch.cat([logits, mu, logvar], dim=1)


def elbo(output, target):
    logits, mu, logvar = output.split([PIXELS, LATENT, LATENT], dim=1)
    rec = F.binary_cross_entropy_with_logits(logits, target, reduction="none").sum(1)
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp())
    kl = kl.clamp(min=FREE_BITS).sum(1)
    return (rec + kl).mean()


def build():
    return VAE()
