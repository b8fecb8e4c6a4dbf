import torch
from torch import nn
from torch.nn import functional as F


class BatchNorm(nn.BatchNorm2d):
    def __init__(self, channels):
        super().__init__(channels, eps=1e-3, momentum=0.1)

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        var, mean = torch.var_mean(x, (0, 2, 3), correction=0)
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var, self.momentum)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, eps=self.eps)


class FrozenNorm(BatchNorm):
    """Of the part that finds the sign; taken over from an earlier model."""

    def __init__(self, channels):
        super().__init__(channels)
        self.requires_grad_(False).eval()


class Where(nn.Module):
    """The six numbers of the affine map."""

    def __init__(self):
        super().__init__()
        self.look = nn.Conv2d(1, 5, 3)
        self.norm = FrozenNorm(5)
        self.hidden = nn.Linear(3 * 3 * 5, 10)
        self.theta = nn.Linear(10, 6)
        nn.init.normal_(self.theta.weight, std=0.05)
        with torch.no_grad():
            self.theta.bias.copy_(torch.tensor([1.1, 0.05, 0.02, -0.05, 1.05, -0.03]))

    def forward(self, x):
        x = F.avg_pool2d(x, 3, stride=2, padding=1)
        x = self.norm(self.look(x).relu())
        x = F.max_pool2d(x, 2).permute(0, 2, 3, 1).flatten(1)
        return self.theta(self.hidden(x).tanh()).view(-1, 2, 3)


class Signs(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.where = Where()
        self.conv1 = nn.Conv2d(1, 6, 3, stride=2, padding=1, bias=False)
        self.norm1 = BatchNorm(6)
        self.conv2 = nn.Conv2d(6, 8, 3, stride=2)
        self.classes = nn.Linear(8, classes)

    def forward(self, sign):
        sign = sign.permute(0, 3, 1, 2)
        grid = F.affine_grid(self.where(sign), sign.shape, align_corners=True)
        x = F.grid_sample(sign, grid, mode="bilinear", align_corners=True)
        x = self.norm1(self.conv1(x)).relu()  # 15 to 8 pixels
        x = self.conv2(F.pad(x, (0, 1, 0, 1))).relu()  # 8 to 4
        return self.classes(x.mean((2, 3)))
