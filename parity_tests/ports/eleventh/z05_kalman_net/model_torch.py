"""PyTorch port of the Kalman network. Measurement noise is diagonal, so that the components of a measurement may
be taken in one after another, each with a division in place of a solve."""

import torch
from torch import nn


class Belief:
    def __init__(self, mu, sigma):
        self.mu, self.sigma = mu, sigma

    def predict(self, F, q):
        return Belief(self.mu @ F.mT, F @ self.sigma @ F.mT + torch.diag_embed(q))

    def observe(self, value, direction, noise, weight):
        along = self.sigma @ direction
        gain = (weight / (along @ direction + noise)).unsqueeze(-1) * along
        surprise = value - self.mu @ direction
        return Belief(
            self.mu + gain * surprise.unsqueeze(-1), self.sigma - gain.unsqueeze(-1) * along.unsqueeze(-2)
        )


class SequentialFilter(nn.Module):
    def __init__(self, latent, observed):
        super().__init__()
        self.F = nn.Parameter(torch.eye(latent) + 0.05 * torch.randn(latent, latent))
        self.H = nn.Parameter(nn.init.xavier_normal_(torch.empty(observed, latent)))
        self.process = nn.Parameter(torch.full((latent,), -2.0))
        self.noise = nn.Parameter(torch.full((observed,), -1.0))

    def forward(self, measured, present):
        batch, latent = len(measured), len(self.F)
        eye = torch.eye(latent, dtype=measured.dtype, device=measured.device)
        belief = Belief(measured.new_zeros(batch, latent), eye.expand(batch, latent, latent))
        track = []
        for z, here in zip(measured.unbind(1), present.unbind(1)):
            belief = belief.predict(self.F, self.process.exp())
            for j, direction in enumerate(self.H):
                belief = belief.observe(z[:, j], direction, self.noise[j].exp(), here)
            track.append(belief.mu)
        return track


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.sensor = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 2))
        self.filter = SequentialFilter(4, 2)
        self.hidden = nn.Linear(8, 32)
        self.readout = nn.Linear(32, 2)

    def forward(self, x, present):
        track = self.filter(self.sensor(x), present)
        average = sum(track) / len(track)
        return self.readout(torch.tanh(self.hidden(torch.cat([track[-1], average], dim=-1))))
