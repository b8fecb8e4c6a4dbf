import torch
import torch.nn.functional as F
from torch import nn


class RQKernel(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(()))
        self.log_length = nn.Parameter(torch.zeros(dim))
        self.log_mixture = nn.Parameter(torch.tensor(0.5))

    @property
    def variance(self):
        return torch.exp(2 * self.log_scale)

    def forward(self, a, b):
        alpha = self.log_mixture.exp()
        sq = ((a.unsqueeze(1) - b) / self.log_length.exp()).square().sum(-1)
        return self.variance * torch.exp(-alpha * torch.log1p(sq / (2 * alpha)))


class SVGP(nn.Module):
    def __init__(self, dim, num_inducing=18, jitter=1e-4):
        super().__init__()
        m = num_inducing
        self.kernel = RQKernel(dim)
        self.constant = nn.Parameter(torch.zeros(()))
        self.inducing = nn.Parameter(0.7 * torch.randn(m, dim))
        self.q_mean = nn.Parameter(0.3 * torch.randn(m))
        self.q_packed = nn.Parameter(0.3 * torch.randn(m * (m + 1) // 2))
        self.register_buffer("tril", torch.tril_indices(m, m), persistent=False)
        self.jitter = jitter

    @property
    def scale_tril(self):
        m = self.q_mean.numel()
        raw = self.q_packed.new_zeros(m, m).index_put(tuple(self.tril), self.q_packed)
        return raw.tril(-1) + F.softplus(raw.diagonal()).diag()

    def forward(self, x):
        kzz = self.kernel(self.inducing, self.inducing)
        kzz = kzz + self.jitter * torch.eye(len(kzz), dtype=kzz.dtype, device=kzz.device)
        a = torch.linalg.solve_triangular(
            torch.linalg.cholesky(kzz), self.kernel(self.inducing, x), upper=False
        )
        mean = self.constant + self.q_mean @ a
        var = self.kernel.variance - a.square().sum(0) + (self.scale_tril @ a).square().sum(0)
        return mean, var

    def kl(self):
        q = torch.distributions.MultivariateNormal(self.q_mean, scale_tril=self.scale_tril)
        p = torch.distributions.MultivariateNormal(
            torch.zeros_like(self.q_mean), torch.eye(len(self.q_mean)).to(self.q_mean)
        )
        return torch.distributions.kl_divergence(q, p)


class BirdCounts(nn.Module):
    def __init__(self, n_covariates=7, n_features=3):
        super().__init__()
        self.extractor = nn.Sequential(
            nn.Linear(n_covariates, 32),
            nn.Tanh(),
            nn.Linear(32, 16),
            nn.Tanh(),
            nn.Linear(16, n_features, bias=False),
        )
        self.gp = SVGP(n_features)

    def forward(self, covariates, log_hours, return_kl=False):
        mean, var = self.gp(self.extractor(covariates))
        moments = torch.stack([mean + log_hours, var], dim=-1)
        return (moments, self.gp.kl()) if return_kl else moments


def build():
    return BirdCounts()


def step(model, batch):
    inputs, counts = batch
    args = (inputs["covariates"], inputs["log_hours"]) if isinstance(inputs, dict) else inputs
    moments, kl = model(*args, return_kl=True)
    mean, var = moments.unbind(-1)
    counts = counts.reshape(-1).to(mean)
    log_lik = counts * mean - (mean + var / 2).exp() - torch.lgamma(counts + 1)
    return kl / len(counts) - log_lik.mean()
