import torch
import torch.nn as nn
import torch.nn.functional as F


class TFBatchNorm(nn.Module):
    """Batch norm over all axes but the second; its running variance is the biased one."""

    def __init__(self, channels, keep=0.9, eps=1e-3, shift=True):
        super().__init__()
        self.keep, self.eps = keep, eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels)) if shift else None
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x):
        if self.training:
            axes = [a for a in range(x.dim()) if a != 1]
            var, mean = torch.var_mean(x, dim=axes, correction=0)
            with torch.no_grad():
                self.running_mean.mul_(self.keep).add_(mean * (1 - self.keep))
                self.running_var.mul_(self.keep).add_(var * (1 - self.keep))
        else:
            mean, var = self.running_mean, self.running_var
        scale = self.weight / (var + self.eps).sqrt()
        offset = -mean * scale if self.bias is None else self.bias - mean * scale
        view = (1, -1) + (1,) * (x.dim() - 2)
        return x * scale.view(view) + offset.view(view)


class EdgeConv(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv = nn.Conv2d(2 * c_in, c_out, 1, bias=False)
        self.bn = TFBatchNorm(c_out)

    def forward(self, x, idx):  # (b, c, n), (b, n, k)
        b, c, n = x.shape
        k = idx.shape[-1]
        near = x.gather(2, idx.reshape(b, 1, n * k).expand(b, c, n * k)).view(b, c, n, k)
        x = x.unsqueeze(-1).expand_as(near)
        return F.leaky_relu(self.bn(self.conv(torch.cat([x, near - x], dim=1))), 0.25).max(dim=-1).values


class DGCNN(nn.Module):
    def __init__(self, k=5):
        super().__init__()
        self.k = k
        self.edge1, self.edge2 = EdgeConv(3, 12), EdgeConv(12, 16)
        self.mix = nn.Conv1d(28, 24, 1)
        self.hidden, self.hidden_bn = nn.Linear(48, 16), TFBatchNorm(16, shift=False)
        self.shapes = nn.Linear(16, 4)

    def forward(self, points):
        with torch.no_grad():
            idx = (points.unsqueeze(2) - points.unsqueeze(1)).pow(2).sum(-1).argsort(dim=-1)[..., : self.k]
        x = points.mT
        a = self.edge1(x, idx)
        h = F.mish(self.mix(torch.cat([a, self.edge2(a, idx)], 1)))
        h = torch.cat([h.amax(2), h.mean(2)], 1)
        return self.shapes(F.mish(self.hidden_bn(self.hidden(h))))


def build():
    return DGCNN()
