import torch
from torch import nn
from torch.nn import functional as F


def conv3(i, o):
    return nn.Conv2d(i, o, 3, padding=1, bias=False)


def norm(c):
    return nn.BatchNorm2d(c, eps=1e-3, momentum=0.1)


class OctConv(nn.Module):
    def __init__(self, h_in, l_in, h_out, l_out):
        super().__init__()
        self.from_low = nn.ModuleDict({"low": conv3(l_in, l_out), "high": conv3(l_in, h_out)})
        self.from_high = nn.ModuleDict({"low": conv3(h_in, l_out), "high": conv3(h_in, h_out)})
        self.bn_l = norm(l_out)
        self.bn_h = norm(h_out)

    def forward(self, xs):
        h, l = xs
        out_l = self.from_low["low"](l) + self.from_high["low"](F.avg_pool2d(h, 2))
        fine = self.from_high["high"](h)
        b, c, hh, ww = fine.shape
        coarse = self.from_low["high"](l)[:, :, :, None, :, None]
        out_h = (fine.view(b, c, hh // 2, 2, ww // 2, 2) + coarse).view(b, c, hh, ww)
        return F.relu(self.bn_h(out_h)), F.relu(self.bn_l(out_l))


class CrackNet(nn.Module):
    def __init__(self, ch=8, cl=6):
        super().__init__()
        self.ch = ch
        self.in_h, self.in_h_bn = conv3(3, ch), norm(ch)
        self.in_l, self.in_l_bn = conv3(3, cl), norm(cl)
        self.o1 = OctConv(ch, cl, ch, cl)
        self.o2 = OctConv(ch, cl, ch, cl)
        self.cls = nn.Conv2d(ch + cl, 1, 1)

    def forward(self, tile):
        x = tile.permute(0, 3, 1, 2)
        h = self.in_h_bn(self.in_h(x)).relu()
        l = self.in_l_bn(self.in_l(F.avg_pool2d(x, 2))).relu()
        h, l = self.o1((h, l))
        dh, dl = self.o2((h, l))
        # the classifier is pointwise: the coarse share is cheaper before upsampling
        w_h, w_l = self.cls.weight.split([self.ch, self.cls.in_channels - self.ch], 1)
        fine = F.conv2d(h + dh, w_h, self.cls.bias)
        coarse = F.conv2d(l + dl, w_l)
        return (fine + F.interpolate(coarse, scale_factor=2, mode="nearest")).permute(0, 2, 3, 1)


def jaccard_steps(sorted_truth):
    p = sorted_truth.sum()
    jac = 1.0 - (p - sorted_truth.cumsum(0)) / (p + (1.0 - sorted_truth).cumsum(0))
    return torch.diff(jac, prepend=jac.new_zeros(1))


def loss(outputs, targets):
    values = []
    for logit, mask in zip(outputs.flatten(1), targets.flatten(1)):
        y = mask.to(logit.dtype)
        margin = torch.where(mask > 0, 1.0 - logit, 1.0 + logit)
        margin, idx = margin.sort(descending=True)
        values.append(margin.clamp_min(0.0) @ jaccard_steps(y[idx]))
    return torch.stack(values).mean()


def build():
    return CrackNet()
