import torch
from torch import Tensor, nn
from torch.distributions import Normal


def _mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, outputs),
    )


class CNP(nn.Module):
    min_sigma = 0.1

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.encode = _mlp(2, width, width)
        self.decode = _mlp(1 + width, width, 2)

    def aggregate(self, r: Tensor, mask: Tensor) -> Tensor:
        r = r.masked_fill(mask.unsqueeze(-1) == 0, 0.0)
        return r.sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1)

    def forward(self, context_x: Tensor, context_y: Tensor, context_mask: Tensor, target_x: Tensor) -> Tensor:
        r = self.aggregate(self.encode(torch.stack((context_x, context_y), -1)), context_mask)
        r = r.unsqueeze(1).expand(-1, target_x.shape[1], -1)
        mu, pre = self.decode(torch.cat((target_x.unsqueeze(-1), r), -1)).unbind(-1)
        sigma = torch.lerp(nn.functional.softplus(pre), torch.ones_like(pre), self.min_sigma)
        return torch.stack((mu, sigma), -1)


# Normal.log_prob has this constant, the reference's loss has not.
HALF_LOG_2PI = 0.9189385332046727


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    mu, sigma = outputs.unbind(-1)
    value, mask = targets.unbind(-1)
    nll = -Normal(mu, sigma, validate_args=False).log_prob(value) - HALF_LOG_2PI
    return (nll * mask).sum() / mask.sum()
