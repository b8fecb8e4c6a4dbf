from torch import nn
from torch.nn import functional as F


class Encoder(nn.Module):
    def __init__(self, latent):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, 3, stride=2)
        self.conv2 = nn.Conv2d(12, 20, 3, stride=2)
        self.mean = nn.Linear(20, latent)
        self.log_var = nn.Linear(20, latent)

    def forward(self, x):
        x = F.softplus(self.conv1(F.pad(x, (0, 1, 0, 1))))
        x = F.softplus(self.conv2(F.pad(x, (0, 1, 0, 1))))
        x = x.mean((-2, -1))
        return self.mean(x), self.log_var(x)


class Decoder(nn.Sequential):
    def __init__(self, latent):
        super().__init__(
            nn.Linear(latent, 20),
            nn.Softplus(),
            nn.Unflatten(1, (20, 1, 1)),
            nn.ConvTranspose2d(20, 16, 3),
            nn.Softplus(),
            nn.ConvTranspose2d(16, 12, 3, stride=2, padding=1, output_padding=1),
            nn.Softplus(),
            nn.ConvTranspose2d(12, 1, 3, stride=2, padding=1, output_padding=1),
            nn.Flatten(),
        )


class VAE(nn.Module):
    def __init__(self, latent=6):
        super().__init__()
        self.encoder = Encoder(latent)
        self.decoder = Decoder(latent)

    def forward(self, image, noise):
        mean, log_var = self.encoder(image)
        z = mean + (0.5 * log_var).exp() * noise
        return {"recon": self.decoder(z), "mean": mean, "log_var": log_var}


def elbo(outputs, targets):
    recon = F.binary_cross_entropy_with_logits(outputs["recon"], targets["recon"], reduction="none").sum(-1)
    shift = (outputs["mean"] - targets["mean"]) ** 2
    ratio = outputs["log_var"] - targets["log_var"]
    kl = 0.5 * (ratio.exp() + shift / targets["log_var"].exp() - 1 - ratio).mean(-1)
    return (recon + kl).mean()
