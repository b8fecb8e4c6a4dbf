import math

import torch
from torch import nn
from torch.nn import functional as F


class Synth(nn.Module):
    rate, hop = 8000.0, 16

    def __init__(self, units=12, harmonics=7):
        super().__init__()
        self.pitch = nn.Linear(1, units)
        self.loud = nn.Linear(1, units)
        self.gru = nn.GRU(2 * units, units, batch_first=True)
        self.norm = nn.LayerNorm(3 * units, eps=1e-6)
        self.hidden = nn.Linear(3 * units, units)
        self.amplitude = nn.Linear(units, 1)
        self.harmonics = nn.Linear(units, harmonics)
        self.register_buffer("number", torch.arange(1, harmonics + 1), persistent=False)

    def stretch(self, frames):
        """(batch, frames, k) to (batch, k, samples)."""
        x = F.pad(frames.transpose(1, 2), (0, 1), mode="replicate")
        x = F.interpolate(x, size=frames.shape[1] * self.hop + 1, mode="linear", align_corners=True)
        return x[..., :-1]

    def forward(self, f0, loudness):
        p = self.pitch(torch.log2(f0 / 440.0)).relu()
        l = self.loud(loudness).relu()
        x = torch.cat([p, l], dim=-1)
        x = torch.cat([self.gru(x)[0], x], dim=-1)
        x = self.hidden(self.norm(x)).relu()
        level = self.squash(self.amplitude(x))
        mix = self.squash(self.harmonics(x)).masked_fill(f0 * self.number >= self.rate / 2, 0.0)
        mix = level * F.normalize(mix, p=1.0, dim=-1)
        phase = (2 * math.pi / self.rate * self.stretch(f0)).cumsum(-1)
        return torch.einsum("bks,bks->bs", self.stretch(mix), torch.sin(self.number[:, None] * phase))

    @staticmethod
    def squash(x):
        # 2 * sigmoid(x) ** ln(10), by way of its logarithm
        return 2.0 * torch.exp(math.log(10.0) * F.logsigmoid(x)) + 1e-7


def spectral_loss(output, target):
    total = output.new_zeros(())
    for size in (32, 16):
        window = torch.hann_window(size, periodic=True, dtype=output.dtype, device=output.device)

        def magnitude(audio):
            z = torch.stft(audio, size, size // 4, window=window, center=False, return_complex=True)
            return (z.real.square() + z.imag.square() + 1e-4).sqrt()

        a, b = magnitude(target), magnitude(output)
        total = total + F.l1_loss(b, a) + F.l1_loss(b.log(), a.log())
    return total
