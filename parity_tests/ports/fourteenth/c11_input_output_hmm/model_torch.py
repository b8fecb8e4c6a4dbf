import torch
from torch import nn
from torch.distributions import Independent, Normal


class InputOutputHMM(nn.Module):
    def __init__(self, states=4, sensors=3, controls=2):
        super().__init__()
        self.initial_logits = nn.Parameter(torch.zeros(states))
        self.transition_logits = nn.Parameter(2 * torch.eye(states))
        self.control_logits = nn.Parameter(0.5 * torch.randn(controls, states, states))
        self.loc = nn.Parameter(0.5 * torch.randn(states, sensors))
        self.log_scale = nn.Parameter(torch.zeros(states, sensors))

    def forward(self, sensors, controls):
        emission = Independent(Normal(self.loc, self.log_scale.exp(), validate_args=False), 1)
        log_b = emission.log_prob(sensors.unsqueeze(2))  # (batch, time, state)
        logits = self.transition_logits + torch.tensordot(controls, self.control_logits, dims=1)
        log_a = logits.log_softmax(-1)  # from state -2 to state -1

        alpha = self.initial_logits.log_softmax(0) + log_b[:, 0]
        totals = [alpha.logsumexp(1)]
        for step in range(1, sensors.shape[1]):
            alpha = torch.logsumexp(alpha.unsqueeze(2) + log_a[:, step], dim=1) + log_b[:, step]
            totals.append(alpha.logsumexp(1))
        # log p(x_1..x_t), to increments.
        totals = torch.stack(totals, dim=1)
        return torch.diff(totals, dim=1, prepend=torch.zeros_like(totals[:, :1]))


def loss(outputs, targets):
    return -(outputs * targets / targets.sum(1, keepdim=True)).sum() / len(outputs)
