import torch.nn as nn
import torch.nn.functional as F


def conv3x3(cin, cout):
    return nn.Conv2d(cin, cout, 3, padding=1)


class ResBlock(nn.Module):
    def __init__(self, n_feats, res_scale):
        super().__init__()
        self.act = nn.ReLU(inplace=True)
        self.conv1 = conv3x3(n_feats, n_feats)
        self.conv2 = conv3x3(n_feats, n_feats)
        self.res_scale = res_scale

    def forward(self, x):
        res = self.conv1(self.act(x))
        res = self.conv2(self.act(res))
        return x + res.mul(self.res_scale)


class EDSR(nn.Module):
    def __init__(self, n_feats=12, n_resblocks=3, res_scale=0.25, scale=2):
        super().__init__()
        self.scale = scale
        self.head = conv3x3(1, n_feats)
        self.body = nn.Sequential(*(ResBlock(n_feats, res_scale) for _ in range(n_resblocks)))
        self.body_out = conv3x3(n_feats, n_feats)
        self.tail = nn.Sequential(conv3x3(n_feats, scale * scale), nn.PixelShuffle(scale))

    def forward(self, low):
        head = self.head(low)
        x = self.body_out(self.body(head)) + head
        up = F.interpolate(low, scale_factor=self.scale, mode="bilinear", align_corners=True)
        return self.tail(x) + up


def build():
    return EDSR()
