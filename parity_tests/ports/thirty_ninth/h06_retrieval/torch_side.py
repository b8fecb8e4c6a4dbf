import torch
import torch.nn as nn
import torch.nn.functional as F


class ScalelessBN(nn.BatchNorm2d):
    def __init__(self, c):
        super().__init__(c, eps=1e-3, momentum=0.1)
        self.weight.requires_grad_(False)


def sep(cin, cout, stride):
    # "same" for even sizes: one row and column at the end with stride 2
    pad = nn.ZeroPad2d((1, 1, 1, 1) if stride == 1 else (0, 1, 0, 1))
    return nn.Sequential(
        pad,
        nn.Conv2d(cin, cin, 3, stride, groups=cin, bias=False),
        nn.Conv2d(cin, cout, 1, bias=False),
        ScalelessBN(cout),
        nn.ReLU6(),
    )


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.47, 0.45, 0.40]).view(3, 1, 1))
        self.register_buffer("inv_std", 1.0 / torch.tensor([0.23, 0.22, 0.25]).view(3, 1, 1))
        self.conv_in = nn.Conv2d(3, 12, 3, stride=2)
        self.wide = sep(12, 16, 1)
        self.tail = nn.Sequential(sep(28, 24, 2), sep(24, 32, 1))

    def forward(self, img):
        x = (img.permute(0, 3, 1, 2) - self.mean) * self.inv_std
        x = F.elu(self.conv_in(F.pad(x, (0, 1, 0, 1))))
        return self.tail(torch.cat([x, self.wide(x)], 1))


class RetrievalNet(nn.Module):
    def __init__(self, dim=24, classes=8):
        super().__init__()
        self.backbone = Backbone()
        self.gem_p = nn.Parameter(torch.tensor([3.0]))
        self.proj = nn.Linear(32, dim)
        self.centers = nn.Parameter(nn.init.xavier_normal_(torch.empty(classes, dim)))

    def forward(self, img):
        x = self.backbone(img).clamp(min=1e-6)
        # mean of powers in logarithms
        lse = torch.logsumexp(self.gem_p * x.log().flatten(2), dim=-1)
        n = x.shape[-1] * x.shape[-2]
        x = torch.exp((lse - torch.log(torch.tensor(float(n), dtype=x.dtype))) / self.gem_p)
        return F.normalize(self.proj(x), dim=-1)


def angular_logits(emb, centers, target, s=12.0, m=0.25):
    cosine = F.linear(emb, F.normalize(centers, dim=1))
    picked = cosine.gather(1, target[:, None])
    theta = torch.acos(picked)
    pi = torch.pi
    shifted = torch.where(
        theta < pi - m, torch.cos(theta + m), picked - m * torch.sin(torch.tensor(m, dtype=theta.dtype))
    )
    return s * cosine.scatter(1, target[:, None], shifted)


def step(model, batch):
    img, target = batch
    target = target.reshape(-1).long()
    emb = model(img)
    loss = F.cross_entropy(angular_logits(emb, model.centers, target), target)
    neg = target[:, None] != target[None, :]
    penalty = (emb @ emb.T)[neg].clamp(min=0).pow(2)
    if penalty.numel():
        loss = loss + 0.5 * penalty.mean()
    return loss


def build():
    return RetrievalNet()
