import torch
from torch import nn
from torch.distributions import Independent, Normal

N_TRAIN = 96


class Encoder(nn.Module):
    def __init__(self, latent):
        super().__init__()
        self.stats = nn.Linear(32, 2 * latent)
        self.mix = nn.Sequential(nn.Linear(4 * 16 + 1, 32), nn.ELU())
        layers, c = [], 1
        for width in (8, 12, 16):
            layers += [nn.Conv1d(c, width, 4, stride=2, padding=1), nn.ELU()]
            c = width
        self.conv = nn.Sequential(*layers)

    def forward(self, x, t):
        h = self.conv(x.unsqueeze(1))
        # frequency-major, as the decoder's grid
        h = torch.cat([h.transpose(1, 2).flatten(1), t], dim=1)
        return self.stats(self.mix(h)).chunk(2, dim=-1)


class Decoder(nn.Module):
    def __init__(self, latent):
        super().__init__()
        self.deconv = nn.Sequential(
            nn.ConvTranspose1d(16, 12, 4, 2, 1),
            nn.ELU(),
            nn.ConvTranspose1d(12, 8, 4, 2, 1),
            nn.ELU(),
            nn.ConvTranspose1d(8, 1, 4, 2, 1),
        )
        self.fc = nn.Sequential(nn.Linear(latent + 1, 32), nn.ELU(), nn.Linear(32, 64), nn.ELU())

    def forward(self, z, t):
        grid = self.fc(torch.cat([z, t], dim=1)).unflatten(1, (4, 16))
        return self.deconv(grid.mT).squeeze(1)


class TCVAE(nn.Module):
    def __init__(self, latent=5):
        super().__init__()
        self.decoder = Decoder(latent)
        self.encoder = Encoder(latent)
        self.log_scale = nn.Parameter(torch.full((32,), -0.5))

    def forward(self, spectrum, temperature, noise):
        t = (temperature - 21.0) / 2.0
        mu, logvar = self.encoder(spectrum, t)
        z = mu + (0.5 * logvar).exp() * noise
        return {"recon": self.decoder(z, t), "mean": mu, "log_var": logvar, "z": z}


def log_importance_weights(m, n, like):
    w = like.new_full((m, m), 1.0 / (m - 1))
    flat = w.view(-1)
    flat[:: m + 1] = 1.0 / n
    flat[1 :: m + 1] = (n - m + 1) / (n * (m - 1))
    return w.log()


def decompose(z, mu, logvar):
    q = Normal(mu, (0.5 * logvar).exp())
    log_qzx = q.log_prob(z).sum(1)
    log_pz = Normal(torch.zeros_like(z), 1.0).log_prob(z).sum(1)

    pair = q.log_prob(z.unsqueeze(1))
    logw = log_importance_weights(len(z), N_TRAIN, z)
    log_qz = (pair.sum(-1) + logw).logsumexp(1)
    log_prod = (pair + logw.unsqueeze(-1)).logsumexp(1).sum(-1)
    return log_qzx - log_qz, log_qz - log_prod, log_prod - log_pz


def step(model, batch, alpha=1.0, beta=6.0, gamma=0.8):
    inputs, clean = batch
    out = model(**inputs)
    scale = model.log_scale.clamp(-3.0, 1.0).exp()
    nll = -Independent(Normal(out["recon"], scale), 1).log_prob(clean)
    mi, tc, kl = decompose(out["z"], out["mean"], out["log_var"])
    return (nll + alpha * mi + beta * tc + gamma * kl).mean()


def build():
    return TCVAE()
