import torch
import torch.nn as nn
import torch.nn.functional as F


class AddCoords(nn.Module):
    def forward(self, x):
        b, _, h, w = x.shape
        ys = (torch.arange(h, device=x.device, dtype=x.dtype) + 0.5) / h * 2 - 1
        xs = (torch.arange(w, device=x.device, dtype=x.dtype) + 0.5) / w * 2 - 1
        yy, xx = torch.meshgrid(ys, xs, indexing="ij")
        coords = torch.stack([yy, xx]).unsqueeze(0).expand(b, -1, -1, -1)
        return torch.cat([x, coords], dim=1)


class ConvGN(nn.Module):
    def __init__(self, in_ch, out_ch, stride=1):
        super().__init__()
        self.stride = stride
        self.conv = nn.Conv2d(in_ch, out_ch, 3, stride, bias=False)
        self.gn = nn.GroupNorm(4, out_ch)

    def forward(self, x):
        x = F.pad(x, (0, 1, 0, 1) if self.stride == 2 else (1, 1, 1, 1))
        return F.relu(self.gn(self.conv(x)))


def make_head(in_ch, out_ch, head_conv=12):
    return nn.Sequential(
        nn.Conv2d(in_ch, head_conv, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(head_conv, out_ch, 1)
    )


class Net(nn.Module):
    def __init__(self, num_classes=3):
        super().__init__()
        self.coords = AddCoords()
        self.level1 = ConvGN(5, 8, 2)
        self.level2 = nn.Sequential(ConvGN(8, 16, 2), ConvGN(16, 16))
        self.level3 = ConvGN(16, 16, 2)
        self.ida_up1 = ConvGN(16, 16)
        self.ida_up2 = nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1, bias=False)
        self.ida_norm2 = nn.GroupNorm(4, 8)
        self.heat = make_head(8, num_classes)
        self.size = make_head(8, 2)

    def forward(self, picture):
        c1 = self.level1(self.coords(picture))
        c2 = self.level2(c1)
        c3 = self.level3(c2)
        p2 = self.ida_up1(F.interpolate(c3, scale_factor=2, mode="nearest")) + c2
        p1 = F.relu(self.ida_norm2(self.ida_up2(p2)) + c1)
        return {"heat": self.heat(p1), "size": F.softplus(self.size(p1))}
