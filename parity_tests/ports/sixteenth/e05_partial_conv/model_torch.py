import torch
import torch.nn.functional as F
from torch import nn


def same(x, size, stride):
    """Zeros as TensorFlow's "same" puts them."""
    pads = []
    for length in (x.shape[-1], x.shape[-2]):
        total = max((-(-length // stride) - 1) * stride + size - length, 0)
        pads += [total // 2, total - total // 2]
    return F.pad(x, pads)


class PartialConv2d(nn.Conv2d):
    def forward(self, x, mask):
        size, stride = self.kernel_size[0], self.stride[0]
        with torch.no_grad():
            # channels of a mask differ where a skip connection joins
            count = F.conv2d(
                same(mask, size, stride), mask.new_ones(1, mask.shape[1], size, size), stride=stride
            )
            seen = count.clamp(max=1)
            scale = seen * (mask.shape[1] * size * size) / (count + 1e-8)
        x = F.conv2d(same(x * mask, size, stride), self.weight, stride=stride) * scale
        x = (x + self.bias.view(1, -1, 1, 1)) * seen
        return x, seen.expand_as(x)


class Block(nn.Module):
    def __init__(self, inputs, outputs, size, stride, slope):
        super().__init__()
        self.conv = PartialConv2d(inputs, outputs, size, stride)
        self.norm = nn.GroupNorm(4, outputs, eps=1e-5)
        self.slope = slope

    def forward(self, x, mask):
        x, mask = self.conv(x, mask)
        return F.leaky_relu(self.norm(x), self.slope), mask


class Inpainting(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = PartialConv2d(3, 8, 5, 2)
        self.down = nn.ModuleList([Block(8, 12, 3, 2, 0.0), Block(12, 16, 3, 2, 0.0)])
        self.up = nn.ModuleList([Block(16 + 12, 12, 3, 1, 0.25), Block(12 + 8, 8, 3, 1, 0.25)])
        self.last = PartialConv2d(8 + 3, 3, 3)

    def forward(self, image, mask):
        mask = mask.expand(-1, 3, -1, -1)
        states = [(image * mask, mask)]
        x, m = self.first(*states[0])
        states.append((x.relu(), m))
        for block in self.down:
            states.append(block(*states[-1]))
        x, m = states.pop()
        for block in (*self.up, self.last):
            pairs = zip((x, m), states.pop())
            x, m = block(*(torch.cat([F.interpolate(low, scale_factor=2), high], 1) for low, high in pairs))
        return x


def step(model, batch):
    image, mask = batch["image"], batch["mask"]
    output = model(image, mask)
    error = (output - image).abs()
    composed = torch.where(mask > 0, image, output)
    rows, columns = composed.diff(dim=2), composed.diff(dim=3)
    return (error * (mask + 6 * (1 - mask))).mean() + 0.1 * (rows.abs().mean() + columns.abs().mean())
