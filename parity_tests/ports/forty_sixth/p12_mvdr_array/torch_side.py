"""Neural MVDR beamformer."""

import torch
from torch import nn


class ReferenceAttention(nn.Module):
    def __init__(self, bins, dim=16, sharpness=4.0):
        super().__init__()
        self.sharpness = sharpness
        self.mlp = nn.Sequential(nn.Linear(bins, dim), nn.Tanh(), nn.Linear(dim, 1, bias=False))

    def forward(self, psd):
        feature = psd.mean(-1).abs().transpose(1, 2)
        return torch.softmax(self.sharpness * self.mlp(feature).squeeze(-1), dim=-1)


class MaskNet(nn.Module):
    def __init__(self, bins, units):
        super().__init__()
        self.gru = nn.GRU(bins, units, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * units, 32)
        self.noise = nn.Linear(32, bins)
        self.speech = nn.Linear(32, bins)

    def forward(self, y):
        feature = (y.abs() + 1e-3).log().mean(-1)
        var, mean = torch.var_mean(feature, dim=1, correction=0, keepdim=True)
        h, _ = self.gru((feature - mean) * torch.rsqrt(var + 1e-3))
        h = torch.relu(self.fc(h))
        return self.speech(h).sigmoid(), self.noise(h).sigmoid()


class NeuralMVDR(nn.Module):
    def __init__(self, bins=17, units=24):
        super().__init__()
        self.masks = MaskNet(bins, units)
        self.attend = ReferenceAttention(bins)

    @staticmethod
    def psd(y, mask):
        weighted = y * (mask / (mask.sum(1, keepdim=True) + 1e-6)).unsqueeze(-1)
        return torch.einsum("btfm,btfn->bfmn", weighted, y.conj())

    def forward(self, real, imag):
        y = torch.complex(real, imag)
        m_s, m_n = self.masks(y)
        phi_s, phi_n = self.psd(y, m_s), self.psd(y, m_n)
        eye = torch.eye(y.shape[-1], dtype=y.dtype, device=y.device)
        load = phi_n.diagonal(dim1=-2, dim2=-1).mean(-1)
        phi_n = phi_n + (1e-2 * load + 1e-4)[..., None, None] * eye
        g = torch.linalg.solve(phi_n, phi_s)
        trace = g.diagonal(dim1=-2, dim2=-1).sum(-1)
        g = g / (trace + 1e-6)[..., None, None]
        u = self.attend(phi_s).to(g.dtype)
        w = torch.einsum("bfmn,bn->bfm", g, u)
        return torch.view_as_real(torch.einsum("bfm,btfm->btf", w, y))


def build():
    return NeuralMVDR()


def loss(outputs, targets):
    targets = targets.to(outputs.dtype)
    mag_o = (outputs.square().sum(-1) + 1e-6).sqrt()
    mag_t = (targets.square().sum(-1) + 1e-6).sqrt()
    diff = outputs * mag_o.pow(-0.7).unsqueeze(-1) - targets * mag_t.pow(-0.7).unsqueeze(-1)
    return 0.5 * (diff.square().sum(-1).mean() + (mag_o.pow(0.3) - mag_t.pow(0.3)).square().mean())
