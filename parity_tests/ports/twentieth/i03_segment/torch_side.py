import torch
from torch import nn
from torch.nn import functional as F


class Unfolded(nn.Conv2d):
    """A 3x3 convolution as im2col and one product (our accelerator has no convolution)."""

    def forward(self, x):
        columns = F.unfold(x, self.kernel_size, self.dilation, self.padding)  # batch, c*9, places
        y = torch.einsum("ok,bkp->bop", self.weight.flatten(1), columns) + self.bias[:, None]
        return y.unflatten(-1, x.shape[-2:])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = Unfolded(20, 8, 3, padding=1)
        self.down = nn.ModuleList(
            [
                Unfolded(2, 8, 3, padding=1),
                Unfolded(8, 16, 3, padding=1),
                Unfolded(16, 12, 3, padding=2, dilation=2),
            ]
        )
        self.classes = nn.Linear(8, 3)

    def forward(self, x):
        a = self.down[0](x).clamp(min=0)
        n, c, h, w = a.shape
        b = a.view(n, c, h // 2, 2, w // 2, 2).mean((3, 5))
        for layer in self.down[1:]:
            b = layer(b).clamp(min=0)
        b = b.repeat_interleave(2, dim=-1).repeat_interleave(2, dim=-2)
        y = self.up(torch.cat((a, b), 1)).clamp(min=0)
        return self.classes(y.movedim(1, -1)).movedim(-1, 1)


def loss(output, target):
    target = target.long()
    entropy = F.cross_entropy(output, target)
    shares = output.softmax(1)
    hot = torch.zeros_like(shares).scatter_(1, target.unsqueeze(1), 1)
    both = (hot * shares).flatten(2).sum(-1)
    each = (hot + shares).flatten(2).sum(-1)
    return entropy + (1 - (2 * both + 1) / (each + 1)).mean() / 2
