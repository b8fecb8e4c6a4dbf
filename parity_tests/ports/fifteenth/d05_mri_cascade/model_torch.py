import torch
from torch import nn
from torch.fft import fft2, fftshift, ifft2


def centered(transform, x):
    """Apply an orthonormal 2-D transform with the zero frequency in the middle."""
    dims = (-2, -1)
    return fftshift(transform(fftshift(x, dim=dims), norm="ortho"), dim=dims)


def as_complex(x):
    return torch.complex(x[:, 0], x[:, 1])


def as_channels(x):
    return torch.stack([x.real, x.imag], 1)


class Stage(nn.Module):
    def __init__(self, width=12, depth=3):
        super().__init__()
        layers, channels = [], 2
        for _ in range(depth):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.GELU(approximate="tanh")]
            channels = width
        self.refine = nn.Sequential(*layers, nn.Conv2d(width, 2, 3, padding=1))
        self.log_noise = nn.Parameter(torch.zeros(()))

    def forward(self, image, measured, sampled):
        image = image + self.refine(image)
        k = centered(fft2, as_complex(image))
        v = self.log_noise.exp()
        k = torch.where(sampled, (k + v * measured) / (1 + v), k)
        return as_channels(centered(ifft2, k))


class MRICascade(nn.Module):
    def __init__(self, stages=3):
        super().__init__()
        self.stages = nn.ModuleList(Stage() for _ in range(stages))

    def forward(self, kspace, mask):
        measured = as_complex(kspace)
        sampled = mask[:, 0] > 0.5
        image = as_channels(centered(ifft2, measured))
        for stage in self.stages:
            image = stage(image, measured, sampled)
        return (image.square().sum(1) + 1e-8).sqrt()
