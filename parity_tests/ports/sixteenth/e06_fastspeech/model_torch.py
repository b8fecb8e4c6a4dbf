import math

import torch
import torch.nn.functional as F
from torch import nn


def positions(length, width, like):
    rate = torch.exp(
        torch.arange(0, width, 2, device=like.device, dtype=like.dtype) * (-math.log(10000.0) / width)
    )
    angle = torch.arange(length, device=like.device, dtype=like.dtype)[:, None] * rate
    return torch.cat([angle.sin(), angle.cos()], -1)


class FFTBlock(nn.Module):
    def __init__(self, width, heads=2, head=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * heads * head)
        self.out = nn.Linear(heads * head, width)
        self.ln_attn, self.ln_conv = nn.LayerNorm(width), nn.LayerNorm(width)
        self.conv = nn.Sequential(
            nn.Conv1d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.Conv1d(2 * width, width, 1)
        )
        self.drop = nn.Dropout(0.1)

    def forward(self, x, padding):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=~padding[:, None, None])
        y = self.out(y.transpose(1, 2).flatten(2))
        x = self.ln_attn(x + self.drop(y)).masked_fill(padding[..., None], 0)
        y = self.conv(x.transpose(1, 2)).transpose(1, 2)
        return self.ln_conv(x + self.drop(y)).masked_fill(padding[..., None], 0)


class DurationPredictor(nn.Module):
    def __init__(self, width, hidden=12):
        super().__init__()
        self.conv = nn.Conv1d(width, hidden, 3, padding=1)
        self.norm = nn.LayerNorm(hidden)
        self.proj = nn.Linear(hidden, 1)

    def forward(self, x):
        x = self.conv(x.transpose(1, 2)).relu().transpose(1, 2)
        return self.proj(self.norm(x)).squeeze(-1)


class FastSpeech(nn.Module):
    def __init__(self, symbols=20, width=16, mels=8, frames=24):
        super().__init__()
        self.frames = frames
        self.symbols = nn.Embedding(symbols, width)
        self.encoder = FFTBlock(width)
        self.durations = DurationPredictor(width)
        self.decoder = FFTBlock(width)
        self.mel = nn.Linear(width, mels)

    def forward(self, phonemes, durations):
        padding = phonemes == 0
        x = self.symbols(phonemes)
        x = (x + positions(x.shape[1], x.shape[2], x)).masked_fill(padding[..., None], 0)
        x = self.encoder(x, padding)
        log_duration = self.durations(x)

        ends = durations.cumsum(1)
        frame = torch.arange(self.frames, device=x.device).expand(len(x), -1).contiguous()
        source = torch.searchsorted(ends, frame).clamp(max=x.shape[1] - 1)
        silence = frame >= ends[:, -1:]
        x = x.gather(1, source[..., None].expand(-1, -1, x.shape[2]))
        x = (x + positions(self.frames, x.shape[2], x)).masked_fill(silence[..., None], 0)
        return {"mel": self.mel(self.decoder(x, silence)), "log_duration": log_duration}


def mel_loss(output, target):
    real = target[..., 0] > -11.5
    return F.l1_loss(output[real], target[real])


def duration_loss(output, target):
    return F.mse_loss(output, torch.log1p(target.to(output.dtype)))
