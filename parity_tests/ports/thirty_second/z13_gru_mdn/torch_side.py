import torch.distributions as D
import torch.nn as nn
import torch.nn.functional as F


class MDNRNN(nn.Module):
    def __init__(self, n_in=3, n_out=2, n_gauss=3):
        super().__init__()
        self.rnn1 = nn.GRU(n_in, 14, batch_first=True)
        self.rnn2 = nn.GRU(14, 10, batch_first=True)
        self.pi = nn.Linear(10, n_gauss)
        self.mu = nn.Linear(10, n_gauss * n_out)
        self.sigma = nn.Linear(10, n_gauss * n_out)
        self.shape = (n_gauss, n_out)

    def forward(self, x):
        x, _ = self.rnn1(x)
        _, h = self.rnn2(x)
        h = h[-1]
        return {
            "logits": self.pi(h),
            "loc": self.mu(h).unflatten(-1, self.shape),
            "scale": F.softplus(self.sigma(h)).unflatten(-1, self.shape) + 1e-2,
        }


def build():
    return MDNRNN()


def loss(outputs, targets):
    comp = D.Independent(D.Normal(outputs["loc"], outputs["scale"]), 1)
    gmm = D.MixtureSameFamily(D.Categorical(logits=outputs["logits"]), comp)
    return -gmm.log_prob(targets).mean()
