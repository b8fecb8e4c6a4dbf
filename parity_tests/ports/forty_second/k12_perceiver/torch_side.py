import torch
import torch.nn.functional as F
from torch import nn

LN = dict(eps=1e-3)


def feed_forward(d):
    return nn.Sequential(nn.LayerNorm(d, **LN), nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))


class Read(nn.Module):
    """Latents read from the tokens."""

    def __init__(self, d, d_tokens, heads):
        super().__init__()
        self.latent_norm = nn.LayerNorm(d, **LN)
        self.token_norm = nn.LayerNorm(d_tokens, **LN)
        self.mha = nn.MultiheadAttention(d, heads, kdim=d_tokens, vdim=d_tokens, batch_first=True)
        self.mlp = feed_forward(d)

    def forward(self, z, tokens, padded):
        tokens = self.token_norm(tokens)
        z = z + self.mha(self.latent_norm(z), tokens, tokens, key_padding_mask=padded, need_weights=False)[0]
        return z + self.mlp(z)


class Think(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(d, **LN)
        self.qkv = nn.Linear(d, 3 * d)
        self.merge = nn.Linear(d, d)
        self.mlp = feed_forward(d)

    def forward(self, z):
        q, k, v = self.qkv(self.norm(z)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v)
        z = z + self.merge(a.transpose(1, 2).flatten(2))
        return z + self.mlp(z)


class SensorPerceiver(nn.Module):
    def __init__(self, sensors=10, latents=6, d=24, d_tokens=20, rounds=2):
        super().__init__()
        self.rounds = rounds
        self.z0 = nn.Parameter(nn.init.trunc_normal_(torch.empty(1, latents, d), std=0.2))
        self.register_buffer("omega", torch.pi * torch.logspace(0, 4, 5, base=2.0))
        self.sensor = nn.Embedding(sensors + 1, 8)
        self.lift = nn.Linear(8 + 1 + 1 + 10, d_tokens)
        self.read = Read(d, d_tokens, 2)
        self.think = nn.Sequential(Think(d, 4), Think(d, 4))
        self.last = nn.LayerNorm(d, **LN)
        self.fault = nn.Linear(latents * d, 4)
        self.life = nn.Linear(d, 1)

    def forward(self, sensor, reading, when):
        sensor = sensor.long()
        angle = torch.einsum("bn,f->bnf", when, self.omega)
        tokens = self.lift(
            torch.cat([self.sensor(sensor), torch.stack([reading, when], -1), angle.sin(), angle.cos()], -1)
        )
        z = self.z0.expand(len(sensor), -1, -1)
        for _ in range(self.rounds):
            z = self.think(self.read(z, tokens, sensor == 0))
        z = self.last(z)
        return {"life": self.life(z.mean(1)), "fault": self.fault(z.flatten(1))}


def build():
    return SensorPerceiver()
