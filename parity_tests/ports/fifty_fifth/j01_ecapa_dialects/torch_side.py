import torch
import torch.nn as nn
import torch.nn.functional as F


def masked_stats(x, w, floor=1e-6):
    # x, w: (N, C, T) / broadcastable, w sums to one over T
    mu = (x * w).sum(-1)
    var = ((x - mu[..., None]).pow(2) * w).sum(-1)
    return mu, var.clamp(min=floor).sqrt()


class ConvReluBN(nn.Sequential):
    def __init__(self, c_in, c_out, k=1, d=1):
        super().__init__(
            nn.Conv1d(c_in, c_out, k, dilation=d, padding=d * (k - 1) // 2),
            nn.ReLU(inplace=True),
            nn.BatchNorm1d(c_out, eps=1e-5, momentum=0.1),
        )


class Res2Conv(nn.Module):
    def __init__(self, channels, d, scale=4):
        super().__init__()
        self.width = channels // scale
        self.convs = nn.ModuleList(ConvReluBN(self.width, self.width, 3, d) for _ in range(scale - 1))

    def forward(self, x):
        first, *rest = x.split(self.width, dim=1)
        out, carry = [first], 0.0
        for conv, part in zip(self.convs, rest):
            carry = conv(part + carry)
            out.append(carry)
        return torch.cat(out, dim=1)


class SEGate(nn.Module):
    def __init__(self, channels, hidden):
        super().__init__()
        self.fc1 = nn.Conv1d(channels, hidden, 1)
        self.fc2 = nn.Conv1d(hidden, channels, 1)

    def forward(self, x, w):
        s = (x * w).sum(-1, keepdim=True)
        return x * torch.sigmoid(self.fc2(F.relu(self.fc1(s))))


class SERes2Block(nn.Module):
    def __init__(self, channels, d, se):
        super().__init__()
        self.gate = SEGate(channels, se)
        self.reduce = ConvReluBN(channels, channels)
        self.res2 = Res2Conv(channels, d)
        self.expand = ConvReluBN(channels, channels)

    def forward(self, x, w):
        return x + self.gate(self.expand(self.res2(self.reduce(x))), w)


class ASP(nn.Module):
    def __init__(self, channels, hidden):
        super().__init__()
        self.attn = nn.Sequential(
            nn.Conv1d(3 * channels, hidden, 1),
            nn.ReLU(),
            nn.BatchNorm1d(hidden),
            nn.Tanh(),
            nn.Conv1d(hidden, channels, 1),
        )

    def forward(self, x, valid, w):
        T = x.size(-1)
        stats = torch.cat(masked_stats(x, w), dim=1)
        ctx = torch.cat([x, stats.unsqueeze(-1).expand(-1, -1, T)], dim=1)
        a = self.attn(ctx).masked_fill(~valid, float("-inf")).softmax(-1)
        return torch.cat(masked_stats(x, a), dim=1)


class ECAPA(nn.Module):
    def __init__(
        self, bands=16, classes=5, channels=16, mfa=32, se=8, hidden=12, embed=24, dilations=(2, 3, 4)
    ):
        super().__init__()
        self.stem = ConvReluBN(bands, channels, 5)
        self.blocks = nn.ModuleList(SERes2Block(channels, d, se) for d in dilations)
        self.mfa = ConvReluBN(channels * len(dilations), mfa)
        self.pool = ASP(mfa, hidden)
        self.head = nn.Sequential(
            nn.BatchNorm1d(2 * mfa),
            nn.Linear(2 * mfa, embed),
            nn.BatchNorm1d(embed),
            nn.Linear(embed, classes),
        )

    def forward(self, fbank, frames):
        x = fbank.transpose(1, 2)
        valid = torch.arange(x.size(-1), device=x.device) < frames.view(-1, 1, 1)
        w = valid.to(x.dtype) / frames.view(-1, 1, 1).to(x.dtype)
        x = x - (x * w).sum(-1, keepdim=True)

        inp = self.stem(x)
        feats = []
        for block in self.blocks:
            feats.append(block(inp, w))
            inp = inp + feats[-1]
        x = self.mfa(torch.cat(feats, dim=1))
        return self.head(self.pool(x, valid, w))


def build():
    return ECAPA()
