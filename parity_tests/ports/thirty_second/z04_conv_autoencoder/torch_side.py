import torch
import torch.nn.functional as F
from torch import nn


class UpConv(nn.Module):
    """stride-2 transposed conv with TF 'same' size (drops the trailing row/column)"""

    def __init__(self, cin, cout):
        super().__init__()
        self.deconv = nn.ConvTranspose2d(cin, cout, 3, stride=2)

    def forward(self, x):
        return F.elu(self.deconv(x)[:, :, :-1, :-1])


class ConvAE(nn.Module):
    def __init__(self, latent=12):
        super().__init__()
        pad = nn.ZeroPad2d((0, 1, 0, 1))
        self.encoder = nn.Sequential(
            pad, nn.Conv2d(1, 6, 3, 2), nn.ELU(), pad, nn.Conv2d(6, 8, 3, 2), nn.ELU()
        )
        self.to_latent = nn.Linear(128, latent)
        self.from_latent = nn.Linear(latent, 128)
        self.decoder = nn.Sequential(UpConv(8, 6), UpConv(6, 4), nn.Conv2d(4, 1, 3, padding=1), nn.Sigmoid())

    def forward(self, img):
        h = self.encoder(img).permute(0, 2, 3, 1).flatten(1)
        z = torch.tanh(self.to_latent(h))
        h = F.elu(self.from_latent(z)).view(-1, 4, 4, 8).permute(0, 3, 1, 2)
        return self.decoder(h), z


def build():
    return ConvAE()


def loss(outputs, targets):
    recon, z = outputs
    return F.mse_loss(recon, targets.reshape(recon.shape)) + l1_penalty(z)


def l1_penalty(z):
    return 1e-3 * z.abs().sum(1).mean()
