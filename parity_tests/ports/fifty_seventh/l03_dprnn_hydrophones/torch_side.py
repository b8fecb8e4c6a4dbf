"""DPRNN separation of hydrophone recordings (PyTorch)."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def bilstm(d_in, d_hidden):
    """One trained bias a gate: the second one of torch stays at zero."""
    rnn = nn.LSTM(d_in, d_hidden, batch_first=True, bidirectional=True)
    for name, p in rnn.named_parameters():
        if "bias_hh" in name:
            nn.init.zeros_(p)
            p.requires_grad_(False)
    return rnn


class Pass(nn.Module):
    """Recurrence along the last axis of (B, C, other, along), residual with global norm."""

    def __init__(self, channels, hidden):
        super().__init__()
        self.norm = nn.GroupNorm(1, channels, eps=1e-8)
        self.proj = nn.Linear(2 * hidden, channels)
        self.rnn = bilstm(channels, hidden)

    def forward(self, x):
        b, c, other, along = x.shape
        seq = x.permute(0, 2, 3, 1).reshape(b * other, along, c)
        out = self.proj(self.rnn(seq)[0]).view(b, other, along, c)
        return x + self.norm(out.permute(0, 3, 1, 2))


class DPRNN(nn.Module):
    def __init__(self, channels=8, hidden=6, depth=2, chunk=8):
        super().__init__()
        self.chunk = chunk
        self.intra = nn.ModuleList(Pass(channels, hidden) for _ in range(depth))
        self.inter = nn.ModuleList(Pass(channels, hidden) for _ in range(depth))
        self.act = nn.PReLU()

    def forward(self, x):
        b, c, t = x.shape
        k, hop = self.chunk, self.chunk // 2
        tail = (hop - t % hop) % hop + hop
        padded = F.pad(x, (hop, tail))
        z = padded.unfold(2, k, hop)  # B, C, chunks, chunk
        for intra, inter in zip(self.intra, self.inter):
            z = intra(z)
            z = inter(z.transpose(2, 3)).transpose(2, 3)
        z = self.act(z)
        z = z.permute(0, 1, 3, 2).reshape(b, c * k, -1)
        out = F.fold(z, (1, padded.shape[-1]), kernel_size=(1, k), stride=(1, hop))
        return out.squeeze(2)[..., hop : hop + t]


class Separator(nn.Module):
    def __init__(self, basis=12, window=16, channels=8, sources=2):
        super().__init__()
        self.sources = sources
        self.encoder = nn.Conv1d(1, basis, window, stride=window // 2, bias=False)
        self.decoder = nn.ConvTranspose1d(basis, 1, window, stride=window // 2, bias=False)
        self.norm = nn.LayerNorm(basis)
        self.squeeze = nn.Conv1d(basis, channels, 1)
        self.dprnn = DPRNN(channels)
        self.mask_gate = nn.Conv1d(channels, sources * basis, 1)
        self.mask_value = nn.Conv1d(channels, sources * basis, 1)

    def forward(self, wave):
        frames = self.encoder(wave[:, None])
        x = self.norm(frames.mT).mT
        x = self.dprnn(self.squeeze(x))
        masks = F.relu(torch.tanh(self.mask_value(x)) * torch.sigmoid(self.mask_gate(x)))
        waves = [self.decoder(frames * m) for m in masks.chunk(self.sources, dim=1)]
        return torch.cat(waves, dim=1)


def pairwise_si_sdr(estimates, references, floor=1e-3):
    """(B, S, T), (B, S, T) -> (B, estimate, reference) in dB."""
    e = estimates - estimates.mean(-1, keepdim=True)
    r = references - references.mean(-1, keepdim=True)
    power = r.square().sum(-1)[:, None]
    dot = torch.einsum("bet,brt->ber", e, r)
    alpha = dot / (power + floor)
    residual = e[:, :, None] - alpha[..., None] * r[:, None]
    wanted = alpha.square() * power
    return 10 * torch.log10((wanted + floor) / (residual.square().sum(-1) + floor))


def loss(outputs, targets):
    sdr = pairwise_si_sdr(outputs, targets)
    orders = torch.stack([sdr[:, 0, 0] + sdr[:, 1, 1], sdr[:, 0, 1] + sdr[:, 1, 0]], dim=1) / 2
    return -orders.amax(dim=1).mean()


def build():
    return Separator()
