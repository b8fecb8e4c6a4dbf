import torch
from torch import nn
from torch.nn import functional as F


class ChannelNorm(nn.LayerNorm):
    """Normalises the channels of (batch, channels, time)."""

    def forward(self, x):
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


def pointwise(n_in, n_out):
    return nn.Conv1d(n_in, n_out, 1)


class Branches(nn.Module):
    def __init__(self, d, heads, d_gate, k_gate, k_merge):
        super().__init__()
        self.heads = heads
        # both branches are merged by depthwise convolution and projection; each half of it sits with its branch
        self.glob = nn.ModuleDict(
            dict(
                norm=ChannelNorm(d),
                v=pointwise(d, d),
                k=pointwise(d, d),
                q=pointwise(d, d),
                o=pointwise(d, d),
                smooth=nn.Conv1d(d, d, k_merge, groups=d, padding=k_merge // 2),
            )
        )
        self.loc = nn.ModuleDict(
            dict(
                norm=ChannelNorm(d),
                expand_gate=pointwise(d, d_gate),
                expand=pointwise(d, d_gate),
                gate_norm=ChannelNorm(d_gate),
                gate=nn.Conv1d(d_gate, d_gate, k_gate, groups=d_gate, padding="same"),
                o=pointwise(d_gate, d),
                smooth=nn.Conv1d(d, d, k_merge, groups=d, padding=k_merge // 2),
            )
        )
        self.merge = pointwise(2 * d, d)

    def attention(self, x, keep):
        m, b, t = self.glob, x.size(0), x.size(2)
        x = m["norm"](x)
        q, k, v = (m[n](x).view(b, self.heads, -1, t).transpose(2, 3) for n in "qkv")
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep.bool().unsqueeze(1))
        return m["o"](y.transpose(2, 3).reshape(b, -1, t))

    def gating(self, x, keep):
        m = self.loc
        x = m["norm"](x)
        gate = m["gate"](m["gate_norm"](F.gelu(m["expand_gate"](x))) * keep)
        return m["o"](F.gelu(m["expand"](x)) * gate)

    def forward(self, x, keep):
        halves = []
        for m, y in ((self.glob, self.attention(x, keep)), (self.loc, self.gating(x, keep))):
            halves.append(y + m["smooth"](y * keep))
        return x + self.merge(torch.cat(halves, 1))


class HalfStep(nn.Sequential):
    def __init__(self, d, mid):
        super().__init__(ChannelNorm(d), pointwise(d, mid), nn.SiLU(), pointwise(mid, d))

    def forward(self, x):
        return torch.add(x, super().forward(x), alpha=0.5)


class Encoder(nn.Module):
    def __init__(self, n_layers, d):
        super().__init__()
        self.second = nn.ModuleList(HalfStep(d, 2 * d) for _ in range(n_layers))
        self.first = nn.ModuleList(HalfStep(d, 2 * d) for _ in range(n_layers))
        self.branches = nn.ModuleList(Branches(d, 4, 20, 7, 5) for _ in range(n_layers))
        self.final = nn.ModuleList(ChannelNorm(d) for _ in range(n_layers))

    def forward(self, x, keep):
        for first, mid, second, norm in zip(self.first, self.branches, self.second, self.final):
            x = norm(second(mid(first(x), keep)))
        return x


class Whistles(nn.Module):
    def __init__(self, bands=10, d=16, n_classes=6):
        super().__init__()
        self.out_mean = nn.Linear(d, n_classes)
        self.out_std = nn.Linear(d, n_classes, bias=False)
        self.attend = nn.Sequential(nn.Conv1d(d, 12, 1), nn.Tanh(), nn.Conv1d(12, 1, 1, bias=False))
        self.encoder = Encoder(2, d)
        self.norm = ChannelNorm(d)
        self.conv2 = nn.Conv1d(d, d, 3, padding=1)
        self.conv1 = nn.Conv1d(bands, d, 3, stride=2)

    def forward(self, strip, length):
        x = strip.transpose(1, 2)
        steps = torch.arange(x.size(-1), device=x.device)
        keep = (steps < length.unsqueeze(-1)).to(x.dtype).unsqueeze(1)
        x = F.relu(self.conv1(F.pad(x * keep, (0, 1))))
        keep = keep[..., 0::2]
        x = self.norm(F.relu(self.conv2(x * keep)))
        x = self.encoder(x, keep)
        w = self.attend(x).masked_fill(keep == 0, float("-inf")).softmax(-1)
        mean = (x * w).sum(-1)
        var = ((x - mean.unsqueeze(-1)).square() * w).sum(-1)
        return self.out_mean(mean) + self.out_std((var + 1e-5).sqrt())


def loss(outputs, targets):
    return F.cross_entropy(outputs, targets.long(), label_smoothing=0.1)


def build():
    return Whistles()
