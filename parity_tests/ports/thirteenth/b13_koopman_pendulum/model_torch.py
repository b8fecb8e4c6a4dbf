import torch
import torch.nn as nn
import torch.nn.functional as F


class Koopman(nn.Module):
    """Autoencoder whose codes move linearly. `share` pulls to observations early in training."""

    passes = 16.0

    def __init__(self, state=3, latent=5, hidden=12):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(state, hidden), nn.Tanh(), nn.Linear(hidden, latent))
        self.transition = nn.Linear(latent, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.Tanh(), nn.Linear(hidden, state))
        self.register_buffer("count", torch.zeros(()))
        nn.init.eye_(self.transition.weight)
        nn.init.zeros_(self.transition.bias)

    def share(self):
        if not self.training:
            return torch.zeros_like(self.count)
        self.count += 1
        share = (1 - self.count / self.passes).clamp(min=0)
        return share

    def roll(self, codes):
        share = self.share()
        z, latents = codes[:, 0], []
        for code in codes[:, :-1].unbind(1):
            z = self.transition(torch.lerp(z, code, share))
            latents.append(z)
        return torch.stack(latents, 1)

    def forward(self, path):
        return self.decoder(self.roll(self.encoder(path)))


def step(model, path):
    codes = model.encoder(path)
    latents = model.roll(codes)
    horizon = torch.arange(latents.shape[1], dtype=path.dtype, device=path.device)
    weights = 0.875**horizon
    weights = (weights / weights.sum())[:, None]
    reconstruction = F.mse_loss(model.decoder(codes), path)
    future = path[:, 1:]
    prediction = (weights * (model.decoder(latents) - future).square()).sum(1).mean()
    goal = codes[:, 1:]
    linear = (weights * (latents - goal).square()).sum(1).mean()
    penalty = model.transition.weight.square().sum() / 256
    return reconstruction + prediction + 0.5 * linear + penalty
