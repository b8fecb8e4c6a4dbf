import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).reshape(b, n, c))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Net(nn.Module):
    def __init__(self, steps=48, sensors=2, patch=4, keep=4, dim=32, dec_dim=24, heads=4):
        super().__init__()
        self.keep, self.num_patches = keep, steps // patch
        # (B, T, C) -> patches: a strided convolution over time
        self.patch_embed = nn.Conv1d(sensors, dim, patch, stride=patch)
        self.pos_embed = nn.Parameter(torch.randn(1, self.num_patches, dim) * 0.1)
        self.blocks = nn.Sequential(Block(dim, heads), Block(dim, heads))
        self.norm = nn.LayerNorm(dim, eps=1e-6)

        self.decoder_embed = nn.Linear(dim, dec_dim)
        self.mask_token = nn.Parameter(torch.randn(1, 1, dec_dim) * 0.1)
        self.decoder_pos_embed = nn.Parameter(torch.randn(1, self.num_patches, dec_dim) * 0.1)
        self.decoder_block = Block(dec_dim, heads)
        self.decoder_norm = nn.LayerNorm(dec_dim, eps=1e-6)
        self.decoder_pred = nn.Linear(dec_dim, patch * sensors)

    def encode(self, signal, ids_keep):
        x = self.patch_embed(signal.transpose(1, 2)).transpose(1, 2) + self.pos_embed
        x = torch.gather(x, 1, ids_keep.unsqueeze(-1).expand(-1, -1, x.size(-1)))
        return self.norm(self.blocks(x))

    def decode(self, latent, ids_restore):
        x = self.decoder_embed(latent)
        x = torch.cat([x, self.mask_token.expand(x.size(0), self.num_patches - self.keep, -1)], dim=1)
        x = x + self.decoder_pos_embed
        x = torch.gather(x, 1, ids_restore.unsqueeze(-1).expand_as(x))
        return self.decoder_pred(self.decoder_norm(self.decoder_block(x)))

    def forward(self, signal, order):
        order = order.long()
        return self.decode(self.encode(signal, order[:, : self.keep]), order.argsort(dim=1))


def loss(output, target):
    target, mask = target[..., :-1], target[..., -1]
    var, mean = torch.var_mean(target, dim=-1, keepdim=True)
    target = (target - mean) / (var + 1e-4).sqrt()
    per_patch = (output - target).pow(2).mean(dim=-1)
    return ((per_patch * mask).sum(dim=1) / mask.sum(dim=1)).mean()
