import torch
import torch.nn as nn
import torch.nn.functional as F


def bn(c):
    return nn.BatchNorm2d(c, eps=1e-3, momentum=0.01)


class EEGNet(nn.Module):
    def __init__(self, n_chan=8, n_time=64, f1=6, d=2, n_class=3, p=0.25):
        super().__init__()
        f2 = f1 * d
        self.time_pad = nn.ZeroPad1d((7, 8))
        self.conv_time = nn.Conv2d(1, f1, (1, 16), bias=False)
        self.conv_space = nn.Conv2d(f1, f2, (n_chan, 1), groups=f1, bias=False)
        self.norms = nn.ModuleList([bn(f1), bn(f2), bn(f2)])
        self.sep = nn.ModuleDict(
            dict(depth=nn.Conv1d(f2, f2, 8, groups=f2, bias=False), point=nn.Linear(f2, f2, bias=False))
        )
        self.drop = nn.Dropout(p)
        self.out = nn.Linear(f2 * (n_time // 16), n_class)

    def forward(self, eeg):
        x = eeg.squeeze(-1)  # batch, electrode, time
        x = 0.1 * (x - x.mean(1, keepdim=True))
        x = self.conv_time(self.time_pad(x).unsqueeze(1))
        x = self.conv_space(self.norms[0](x))
        x = F.elu(self.norms[1](x)).squeeze(2)
        x = self.drop(F.avg_pool1d(x, 4))
        x = self.sep["depth"](F.pad(x, (3, 4)))
        x = self.sep["point"](x.mT).mT
        x = F.elu(self.norms[2](x.unsqueeze(2)).squeeze(2))
        x = x.unflatten(-1, (-1, 4)).mean(-1)
        return self.out(self.drop(x).mT.flatten(1))


def build():
    return EEGNet()


@torch.no_grad()
def shrink(w, radius):
    """Columns of fan-in longer than the radius back onto it."""
    length = w.flatten(1).norm(dim=1)
    w.mul_((length.clamp(max=radius) / (length + 1e-7)).view(-1, *[1] * (w.dim() - 1)))


class MaxNormSGD(torch.optim.SGD):
    """SGD; afterwards the spatial filters keep to norm 0.4, the classifier to 0.5."""

    def step(self, closure=None):
        value = super().step(closure)
        for group in self.param_groups:
            for p in group["params"]:
                if p.dim() == 4 and p.shape[2] > 1:
                    shrink(p, 0.4)
                elif p.dim() == 2 and p.shape[0] == 3:
                    shrink(p, 0.5)
        return value


def optimizer(params):
    return MaxNormSGD(params, lr=0.05, momentum=0.9)
