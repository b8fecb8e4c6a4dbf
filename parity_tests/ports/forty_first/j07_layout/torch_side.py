import torch
import torch.nn as nn
import torch.nn.functional as F


def seg_loss(logits, target):
    return F.cross_entropy(logits.movedim(-1, 1), target.long())


def kind_loss(logits, target):
    return F.binary_cross_entropy_with_logits(logits, target)


class Cgr(nn.Sequential):
    def __init__(self, cin, cout, dilation=1):
        super().__init__(
            nn.Conv2d(cin, cout, 3, padding=dilation, dilation=dilation, bias=False),
            nn.GroupNorm(4, cout, eps=1e-3),
            nn.ReLU(inplace=True),
        )


class Deform(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.shift = nn.Conv2d(ch, 2, 3, padding=1)
        nn.init.normal_(self.shift.weight, std=0.1)
        nn.init.uniform_(self.shift.bias, 0.2, 0.5)

    @staticmethod
    @torch.no_grad()
    def corners(off, h, w):
        """Flat indices and bilinear weights of the four neighbours."""
        dy, dx = off.unbind(1)
        y = (torch.arange(h, device=off.device)[:, None] + dy).clamp(0, h - 1.001)
        x = (torch.arange(w, device=off.device) + dx).clamp(0, w - 1.001)
        fy, fx = y.frac(), x.frac()
        base = (y.floor() * w + x.floor()).long()
        return [
            (base, (1 - fy) * (1 - fx)),
            (base + 1, (1 - fy) * fx),
            (base + w, fy * (1 - fx)),
            (base + w + 1, fy * fx),
        ]

    def forward(self, f):
        n, c, h, w = f.shape
        flat = f.flatten(2)
        out = 0
        for idx, weight in self.corners(self.shift(f), h, w):
            g = flat.gather(2, idx.view(n, 1, -1).expand(-1, c, -1)).view_as(f)
            out = out + g * weight.unsqueeze(1)
        return out


class LayoutNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(Cgr(1, 12), nn.MaxPool2d(2), Cgr(12, 16))
        self.deform = Deform(16)
        self.mix = nn.Sequential(
            nn.Conv2d(16, 16, 3, padding=1), nn.InstanceNorm2d(16, eps=1e-3, affine=True)
        )
        self.context = Cgr(16, 24, dilation=2)
        self.heads = nn.ModuleDict(
            {
                "kind": nn.Sequential(nn.Linear(24, 16), nn.Tanh(), nn.Linear(16, 3)),
                "seg": nn.Conv2d(24, 4, 1),
            }
        )

    def forward(self, page):
        x = self.backbone(1.0 - page.permute(0, 3, 1, 2))
        x = self.context(x + self.mix(self.deform(x)))
        return {
            "seg": self.heads["seg"](x).permute(0, 2, 3, 1),
            "kind": self.heads["kind"](x.logsumexp((2, 3))),
        }


def build():
    return LayoutNet()
