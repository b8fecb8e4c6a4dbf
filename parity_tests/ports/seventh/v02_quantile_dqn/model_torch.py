import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    """QR-DQN with a dueling head, frames stacked along the channels."""

    def __init__(self, n_actions=4, n_quantiles=11):
        super().__init__()
        self.n_actions = n_actions
        self.n_quantiles = n_quantiles
        self.conv1 = nn.Conv2d(4, 8, kernel_size=4, stride=2)
        self.conv2 = nn.Conv2d(8, 12, kernel_size=3)
        self.fc_v1 = nn.Linear(108, 24)
        self.fc_v2 = nn.Linear(24, n_quantiles)
        self.fc_a1 = nn.Linear(108, 24)
        self.fc_a2 = nn.Linear(24, n_actions * n_quantiles)

    def forward(self, frames):
        x = F.relu(self.conv1(frames / 256))
        x = F.relu(self.conv2(x))
        x = x.permute(0, 2, 3, 1).flatten(1)  # as Keras flattens
        v = self.fc_v2(F.relu(self.fc_v1(x))).view(-1, 1, self.n_quantiles)
        a = self.fc_a2(F.relu(self.fc_a1(x))).view(-1, self.n_actions, self.n_quantiles)
        return v + (a - a.mean(-1, keepdim=True))


def quantile_huber_loss(quantiles, batch, kappa=1.0):
    actions, targets = batch[:, 0].long(), batch[:, 1:]
    n = quantiles.size(-1)
    theta = quantiles[torch.arange(len(actions), device=actions.device), actions]
    td = targets.unsqueeze(1) - theta.unsqueeze(2)
    huber = F.huber_loss(
        theta.unsqueeze(2).expand_as(td), targets.unsqueeze(1).expand_as(td), reduction="none", delta=kappa
    )
    tau_hat = (torch.arange(n, device=td.device, dtype=td.dtype) + 0.5) / n
    rho = (tau_hat - (td.detach() < 0).to(td.dtype)).abs() * huber / kappa
    return rho.mean(2).sum(1).mean()
