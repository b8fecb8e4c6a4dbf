import torch
from torch import nn
from torch.distributions import NegativeBinomial
from torch.nn.functional import softplus


class DeepAR(nn.Module):
    def __init__(self, items=12, item_dim=4, hidden=12):
        super().__init__()
        self.items = nn.Embedding(items, item_dim, padding_idx=0)
        self.lstm = nn.LSTM(1 + 2 + item_dim + 1, hidden, batch_first=True)
        # One bias is enough.
        self.lstm.bias_hh_l0.requires_grad_(False).zero_()
        self.mu = nn.Linear(hidden, 1)
        self.alpha = nn.Linear(hidden, 1)

    def forward(self, item, demand, calendar):
        batch, days = demand.shape
        v = demand.mean(1, keepdim=True) + 1
        lag = torch.cat([demand.new_zeros(batch, 1), demand[:, :-1] / v], dim=1)
        static = torch.cat([self.items(item), v.log()], dim=1)
        x = torch.cat([lag[..., None], calendar, static[:, None].expand(-1, days, -1)], dim=2)
        h, _ = self.lstm(x)
        mu = softplus(self.mu(h)).squeeze(-1) * v
        alpha = softplus(self.alpha(h)).squeeze(-1) * v.rsqrt()
        return torch.stack([mu, alpha], dim=-1)


def loss(outputs, targets):
    mu, alpha = outputs.unbind(-1)
    likelihood = NegativeBinomial(total_count=1 / alpha, logits=(alpha * mu).log(), validate_args=False)
    return -likelihood.log_prob(targets).mean()
