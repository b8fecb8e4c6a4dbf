import torch.nn.functional as F
from torch import nn

BETA, CLASS_WEIGHT = 0.5, 2.0


class BetaVAE(nn.Module):
    def __init__(self, latent=6, classes=3):
        super().__init__()
        self.patch = nn.Linear(16, 12)
        self.patch_norm = nn.LayerNorm(12, eps=1e-3)
        self.encoder = nn.Linear(16 * 12, 32)
        self.mu = nn.Linear(32, latent)
        self.logvar = nn.Linear(32, latent)
        self.decoder = nn.Linear(latent, 4 * 4 * 8)
        self.smooth = nn.Conv2d(8, 8, 3, padding=1)
        self.paint = nn.ConvTranspose2d(8, 1, 4, stride=2, padding=1)
        self.classify = nn.Linear(latent, classes)

    def encode(self, image):
        patches = F.unfold(image.unsqueeze(1), kernel_size=4, stride=4).transpose(1, 2)
        x = self.patch_norm(F.elu(self.patch(patches)))
        x = F.elu(self.encoder(x.flatten(1)))
        return self.mu(x), self.logvar(x)

    def decode(self, z):
        x = F.elu(self.decoder(z)).view(-1, 4, 4, 8).permute(0, 3, 1, 2)
        x = F.interpolate(x, scale_factor=2, mode="nearest")
        return self.paint(F.elu(self.smooth(x))).squeeze(1)

    def forward(self, image, noise):
        mu, logvar = self.encode(image)
        z = mu + (0.5 * logvar).exp() * noise
        return {"recon": self.decode(z), "mu": mu, "logvar": logvar, "label": self.classify(mu)}


def step(model, batch):
    inputs, label = batch
    image, noise = (inputs["image"], inputs["noise"]) if isinstance(inputs, dict) else inputs
    out = model(image, noise)
    n = image.shape[0]
    recon = F.binary_cross_entropy_with_logits(out["recon"], image, reduction="sum") / n
    kl = 0.5 * (out["mu"].square() + out["logvar"].exp() - 1 - out["logvar"]).sum() / n
    return recon + BETA * kl + CLASS_WEIGHT * F.cross_entropy(out["label"], label.long())


def build():
    return BetaVAE()
