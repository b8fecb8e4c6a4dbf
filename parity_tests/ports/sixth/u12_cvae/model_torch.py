import torch
import torch.nn.functional as F
from torch import nn

LATENT, CLASSES = 6, 4


class Norm(nn.Module):
    """Batch norm with the biased variance in its statistics."""

    def __init__(self, channels, momentum=0.99, eps=1e-3):
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.gamma = nn.Parameter(torch.ones(channels))
        self.beta = nn.Parameter(torch.zeros(channels))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("var", torch.ones(channels))

    def forward(self, x):
        if not self.training:
            return F.batch_norm(x, self.mean, self.var, self.gamma, self.beta, eps=self.eps)
        with torch.no_grad():
            var, mean = torch.var_mean(x, (0, 2, 3), correction=0)
            self.mean.lerp_(mean, self.momentum)
            self.var.lerp_(var, self.momentum)
        return F.batch_norm(x, None, None, self.gamma, self.beta, True, 0.0, self.eps)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 12, 4, stride=2, padding=1, bias=False),
            Norm(12),
            nn.SiLU(),
            nn.Conv2d(12, 20, 3, bias=False),
            Norm(20),
            nn.SiLU(),
        )
        self.to_mean = nn.Linear(20 * 16 + CLASSES, LATENT)
        self.to_logvar = nn.Linear(20 * 16 + CLASSES, LATENT)
        self.project = nn.Linear(LATENT + CLASSES, 6 * 6 * 12)
        self.dec1 = nn.ConvTranspose2d(12, 10, 3, stride=2, padding=1, output_padding=1)
        self.dec2 = nn.Conv2d(10, 1, 3, padding=1)

    def encode(self, image, label):
        h = self.features(image).permute(0, 2, 3, 1).flatten(1)
        h = torch.cat([h, label], 1)
        return self.to_mean(h), self.to_logvar(h)

    def decode(self, z, label):
        x = F.silu(self.project(torch.cat([z, label], 1)))
        x = x.view(-1, 6, 6, 12).permute(0, 3, 1, 2)
        return self.dec2(F.silu(self.dec1(x)))

    def forward(self, image, label, noise):
        label = F.one_hot(label.long(), CLASSES).to(image.dtype)
        mean, logvar = self.encode(image, label)
        z = mean + (0.5 * logvar).exp() * noise
        return {"picture": self.decode(z, label), "posterior": torch.cat([mean, logvar], 1)}


def reconstruction(output, target):
    return F.binary_cross_entropy_with_logits(output, target, reduction="none").flatten(1).sum(1).mean()


def divergence(output, target):
    mean, logvar = output.chunk(2, dim=1)
    kl = -0.5 * (1 + logvar - mean.square() - logvar.exp())
    return (kl * target.view(-1, 1)).mean()
