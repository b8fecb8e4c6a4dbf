import torch
from torch import nn
from torch.nn import functional as F


class LongSelfAttention(nn.Module):
    """Sliding window in O(L * w), and one global token at the front."""

    def __init__(self, dim, n_heads, w):
        super().__init__()
        self.n_heads, self.w = n_heads, w
        self.qkv = nn.Linear(dim, 3 * dim)
        self.qkv_global = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def heads(self, x):
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

    def windows(self, x):
        # b h l d -> b h l (2w+1) d
        return F.pad(x, (0, 0, self.w, self.w)).unfold(2, 2 * self.w + 1, 1).transpose(-1, -2)

    def forward(self, x, pad):
        q, k, v = (self.heads(t) for t in self.qkv(x).chunk(3, dim=-1))
        q = q * q.shape[-1] ** -0.5

        # scores with the neighbours, and with the global token in one more slot
        near = torch.einsum("bhld,bhlwd->bhlw", q, self.windows(k))
        blocked = F.pad(pad, (self.w, self.w), value=True).unfold(1, 2 * self.w + 1, 1)
        near = near.masked_fill(blocked[:, None], float("-inf"))
        far = torch.einsum("bhld,bhd->bhl", q, k[:, :, 0]).unsqueeze(-1)
        p = torch.cat((far, near), dim=-1).softmax(-1)
        out = p[..., :1] * v[:, :, :1] + torch.einsum("bhlw,bhlwd->bhld", p[..., 1:], self.windows(v))

        qg, kg, vg = (self.heads(t) for t in self.qkv_global(x).chunk(3, dim=-1))
        cls = F.scaled_dot_product_attention(qg[:, :, :1], kg, vg, attn_mask=~pad[:, None, None])
        out = torch.cat((cls, out[:, :, 1:]), dim=2)
        return self.proj(out.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, dim, n_heads, w):
        super().__init__()
        self.attn = LongSelfAttention(dim, n_heads, w)
        self.ln1 = nn.LayerNorm(dim)
        self.ffn = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.ln2 = nn.LayerNorm(dim)

    def forward(self, x, pad):
        x = self.ln1(x + self.attn(x, pad))
        return self.ln2(x + self.ffn(x))


class ContractLongformer(nn.Module):
    def __init__(self, vocab=120, max_len=32, dim=24, n_heads=3, w=4, depth=2, n_classes=5):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(max_len, dim)
        self.ln = nn.LayerNorm(dim)
        self.layers = nn.ModuleList(Layer(dim, n_heads, w) for _ in range(depth))
        self.head = nn.Sequential(nn.Linear(2 * dim, dim), nn.Tanh(), nn.Linear(dim, n_classes))

    def forward(self, tokens):
        pad = tokens == 0
        x = self.ln(self.tok(tokens) + self.pos.weight[: tokens.shape[1]])
        for layer in self.layers:
            x = layer(x, pad)
        mean = x.masked_fill(pad[..., None], 0.0).sum(1) / (~pad).sum(1, keepdim=True)
        return self.head(torch.cat((x[:, 0], mean), dim=-1))


def build():
    return ContractLongformer()
