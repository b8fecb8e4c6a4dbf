import math

import torch
import torch.nn.functional as F
from torch import nn


class SeriesDecomp(nn.Module):
    def __init__(self, kernel_size):
        super().__init__()
        self.kernel_size = kernel_size

    def forward(self, x):
        half = self.kernel_size // 2
        trend = F.avg_pool1d(x.mT, self.kernel_size, stride=1, padding=half, count_include_pad=False).mT
        return x - trend, trend


class AutoCorrelation(nn.Module):
    def __init__(self, d_model, n_heads, factor):
        super().__init__()
        self.n_heads = n_heads
        self.factor = factor
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.o_proj = nn.Linear(d_model, d_model)

    def forward(self, x, memory):
        L = x.size(1)
        memory = memory[:, :L]
        # (batch, heads, channels, time)
        q, k, v = (
            t.unflatten(-1, (self.n_heads, -1)).permute(0, 2, 3, 1)
            for t in (self.q_proj(x), self.k_proj(memory), self.v_proj(memory))
        )
        corr = torch.fft.irfft(torch.fft.rfft(q).conj() * torch.fft.rfft(k), n=L).mean(2)
        w, delay = corr.topk(int(self.factor * math.log(L)), dim=-1)
        w = w.softmax(-1)
        pos = torch.arange(L, device=x.device)
        out = torch.zeros_like(v)
        for i in range(w.size(-1)):
            idx = (pos + delay[..., i, None]) % L
            out = out + w[..., i, None, None] * v.gather(-1, idx.unsqueeze(2).expand_as(v))
        return self.o_proj(out.permute(0, 3, 1, 2).flatten(2))


class SeasonalLayerNorm(nn.LayerNorm):
    def forward(self, x):
        x = super().forward(x)
        return x - x.mean(1, keepdim=True)


class FeedForward(nn.Sequential):
    def __init__(self, d_model, d_ff):
        super().__init__(
            nn.Linear(d_model, d_ff, bias=False), nn.SiLU(), nn.Linear(d_ff, d_model, bias=False)
        )


class DataEmbedding(nn.Module):
    def __init__(self, c_in, n_marks, d_model):
        super().__init__()
        self.token = nn.Conv1d(c_in, d_model, 3, padding=1, padding_mode="circular", bias=False)
        self.temporal = nn.Linear(n_marks, d_model, bias=False)

    def forward(self, x, marks):
        return self.token(x.mT).mT + self.temporal(marks)


class EncoderLayer(nn.Module):
    def __init__(self, d_model, n_heads, factor, decomp):
        super().__init__()
        self.attn = AutoCorrelation(d_model, n_heads, factor)
        self.ff = FeedForward(d_model, 2 * d_model)
        self.decomp = decomp

    def forward(self, x):
        x, _ = self.decomp(x + self.attn(x, x))
        x, _ = self.decomp(x + self.ff(x))
        return x


class DecoderLayer(nn.Module):
    def __init__(self, d_model, n_heads, factor, decomp, c_out):
        super().__init__()
        self.self_attn = AutoCorrelation(d_model, n_heads, factor)
        self.cross_attn = AutoCorrelation(d_model, n_heads, factor)
        self.ff = FeedForward(d_model, 2 * d_model)
        self.decomp = decomp
        self.trend_proj = nn.Conv1d(d_model, c_out, 3, padding=1, padding_mode="circular", bias=False)

    def forward(self, x, memory):
        x, t1 = self.decomp(x + self.self_attn(x, x))
        x, t2 = self.decomp(x + self.cross_attn(x, memory))
        x, t3 = self.decomp(x + self.ff(x))
        return x, self.trend_proj((t1 + t2 + t3).mT).mT


class Autoformer(nn.Module):
    def __init__(
        self, c=3, n_marks=4, d_model=24, n_heads=4, factor=1.3, window=13, label_len=24, pred_len=12
    ):
        super().__init__()
        self.label_len, self.pred_len = label_len, pred_len
        self.decomp = SeriesDecomp(window)
        self.enc_embedding = DataEmbedding(c, n_marks, d_model)
        self.dec_embedding = DataEmbedding(c, n_marks, d_model)
        self.encoder = nn.Sequential(
            EncoderLayer(d_model, n_heads, factor, self.decomp),
            EncoderLayer(d_model, n_heads, factor, self.decomp),
            SeasonalLayerNorm(d_model),
        )
        self.decoder = DecoderLayer(d_model, n_heads, factor, self.decomp, c)
        self.norm = SeasonalLayerNorm(d_model)
        self.projection = nn.Linear(d_model, c)

    def forward(self, load, marks):
        seq_len = load.size(1)
        seasonal, trend = self.decomp(load)
        seasonal = F.pad(seasonal[:, -self.label_len :], (0, 0, 0, self.pred_len))
        level = load.mean(1, keepdim=True).expand(-1, self.pred_len, -1)
        trend = torch.cat([trend[:, -self.label_len :], level], 1)

        memory = self.encoder(self.enc_embedding(load, marks[:, :seq_len]))
        x, residual = self.decoder(self.dec_embedding(seasonal, marks[:, seq_len - self.label_len :]), memory)
        out = self.projection(self.norm(x)) + trend + residual
        return out[:, -self.pred_len :]


def build():
    return Autoformer()
