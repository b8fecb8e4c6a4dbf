import torch
import torch.nn.functional as F
from torch import nn


class Caser(nn.Module):
    def __init__(self, n_items=61, n_users=30, length=8, dim=12, n_v=3, n_h=6, heights=(1, 2, 3, 5)):
        super().__init__()
        self.user = nn.Embedding(n_users, dim)
        self.item = nn.Embedding(n_items, dim)
        self.conv_h = nn.ModuleList([nn.Conv2d(1, n_h, (h, dim)) for h in heights])
        self.conv_v = nn.Conv2d(1, n_v, (length, 1))
        self.fc = nn.Linear(n_v * dim + n_h * len(heights), dim)
        self.W2 = nn.Embedding(n_items, 2 * dim)
        self.b2 = nn.Parameter(torch.zeros(n_items))

    def forward(self, history, listener, candidates):
        history, candidates = history.long(), candidates.long()
        image = (self.item(history) * (history > 0).unsqueeze(-1)).unsqueeze(1)
        parts = [self.conv_v(image).flatten(1)]
        parts += [F.relu(conv(image)).amax((2, 3)) for conv in self.conv_h]
        z = F.relu(self.fc(torch.cat(parts, 1)))
        query = torch.cat((z, self.user(listener.long())), 1)
        return torch.baddbmm(
            self.b2[candidates].unsqueeze(-1), self.W2(candidates), query.unsqueeze(-1)
        ).squeeze(-1)


def loss(outputs, targets):
    targets = targets.to(outputs.dtype)
    weight = torch.where(targets > 0.5, 1.0, 1.0 / (1 - targets).sum(-1, keepdim=True))
    bce = F.binary_cross_entropy_with_logits(outputs, targets, weight=weight, reduction="sum")
    return bce / len(outputs)


class TwoRules(torch.optim.Optimizer):
    """Adam (Keras's form of epsilon) for groups with rule 'adam'; momentum with the rate inside the
    velocity, as Keras has it, for those with rule 'momentum'."""

    @torch.no_grad()
    def step(self, closure=None):
        value = None
        if closure is not None:
            with torch.enable_grad():
                value = closure()
        for group in self.param_groups:
            update = self._adam if group["rule"] == "adam" else self._momentum
            for p in group["params"]:
                if p.grad is not None:
                    update(p, self.state[p], group)
        return value

    @staticmethod
    def _adam(p, state, group):
        if not state:
            state.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
        b1, b2 = group["betas"]
        state["t"] += 1
        state["m"].lerp_(p.grad, 1 - b1)
        state["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
        rate = group["lr"] * (1 - b2 ** state["t"]) ** 0.5 / (1 - b1 ** state["t"])
        p.addcdiv_(state["m"], state["v"].sqrt().add_(group["eps"]), value=-rate)

    @staticmethod
    def _momentum(p, state, group):
        if not state:
            state["velocity"] = torch.zeros_like(p)
        state["velocity"].mul_(group["momentum"]).sub_(p.grad, alpha=group["lr"])
        p.add_(state["velocity"])


def optimizer(parameters):
    parameters = list(parameters)
    groups = [
        dict(params=[p for p in parameters if p.ndim > 1], rule="adam", lr=4e-3, betas=(0.9, 0.98), eps=1e-7),
        dict(params=[p for p in parameters if p.ndim <= 1], rule="momentum", lr=4e-2, momentum=0.8),
    ]
    opt = TwoRules(groups, {})
    warm = 8
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda i: min((i + 1) / warm, (warm / (i + 1)) ** 0.5))
    return opt, schedule


def build():
    return Caser()
