"""Energy-based model of protein torsions with a denoising score matching objective."""

import torch
from torch import nn


class FiLM(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.proj = nn.Linear(d, 2 * d)
        nn.init.normal_(self.proj.weight, std=0.1)
        nn.init.zeros_(self.proj.bias)

    def forward(self, x, cond):
        gamma, beta = self.proj(cond).unsqueeze(1).chunk(2, dim=-1)
        return torch.addcmul(beta, x, 1 + gamma)


class ChainBlock(nn.Module):
    def __init__(self, d, dilation):
        super().__init__()
        self.conv = nn.Conv1d(d, 2 * d, 3, padding=dilation, dilation=dilation)
        self.film = FiLM(d)
        self.norm = nn.RMSNorm(d, eps=1e-5)
        self.mix = nn.Linear(d, d)

    def forward(self, x, cond, pad):
        h = self.film(self.norm(x), cond).masked_fill(pad, 0.0)
        a, b = self.conv(h.mT).chunk(2, dim=1)
        return x + self.mix((a.tanh() * b.sigmoid()).mT).masked_fill(pad, 0.0)


class Energy(nn.Module):
    def __init__(self, d=32, vocab=21, depth=2, harmonics=3):
        super().__init__()
        self.harmonics = harmonics
        self.type_embedding = nn.Embedding(vocab, d)
        self.angle_in = nn.Linear(4 * harmonics, d)
        self.sigma_mlp = nn.Sequential(nn.Linear(1, d), nn.SiLU(), nn.Linear(d, d), nn.SiLU())
        self.layers = nn.ModuleList(ChainBlock(d, 2**i) for i in range(depth))
        self.readout = nn.Sequential(nn.RMSNorm(d, eps=1e-5), nn.Linear(d, d), nn.Softplus(), nn.Linear(d, 1))

    def forward(self, angles, residues, sigma):
        pad = (residues == 0).unsqueeze(-1)
        k = torch.arange(1, self.harmonics + 1, dtype=angles.dtype, device=angles.device)
        phase = angles.unsqueeze(-1) * k
        waves = torch.cat([phase.sin(), phase.cos()], dim=-1).flatten(2)
        cond = self.sigma_mlp(0.25 * sigma.log())
        x = (self.angle_in(waves) + self.type_embedding(residues.long())).masked_fill(pad, 0.0)
        for layer in self.layers:
            x = layer(x, cond, pad)
        return self.readout(x).masked_fill(pad, 0.0).sum(dim=1) / sigma


def build():
    return Energy()


def step(model, batch, ridge=1e-3):
    inputs, noise = batch
    if isinstance(inputs, dict):
        inputs = (inputs["angles"], inputs["residues"], inputs["sigma"])
    angles, residues, sigma = inputs
    std = sigma.unsqueeze(1)
    x = (angles + std * noise).detach().requires_grad_()
    energy = model(x, residues, sigma)
    (grad,) = torch.autograd.grad(energy.sum(), x, create_graph=True)
    keep = (residues > 0).unsqueeze(-1)
    residual = ((noise - std * grad).square() * keep).sum(dim=(1, 2))
    dsm = residual / (2 * keep.sum(dim=(1, 2)))
    return 0.5 * dsm.mean() + ridge * energy.square().mean()
