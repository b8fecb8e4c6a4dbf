"""Growing neural cellular automata in PyTorch, with the optimizer that Keras has."""

import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self, channels=8, hidden=32, steps=6):
        super().__init__()
        self.steps = steps
        self.rule = nn.Sequential(
            nn.Conv2d(3 * channels, hidden, 1), nn.ReLU(), nn.Conv2d(hidden, channels, 1, bias=False)
        )
        sobel = torch.outer(torch.tensor([1.0, 2.0, 1.0]), torch.tensor([-1.0, 0.0, 1.0])) / 8
        identity = torch.zeros(3, 3)
        identity[1, 1] = 1
        # Three filters for each channel, one behind the other.
        self.register_buffer(
            "filters",
            torch.stack([identity, sobel, sobel.T]).repeat(channels, 1, 1).unsqueeze(1),
            persistent=False,
        )

    def alive(self, state):
        return F.max_pool2d(state[:, 3:4], 3, stride=1, padding=1) > 0.1

    def forward(self, seed, fire):
        state = seed
        for t in range(self.steps):
            before = self.alive(state)
            seen = F.conv2d(state, self.filters, padding=1, groups=state.shape[1])
            state = state + self.rule(seen) * fire[:, t : t + 1]
            state = state * (before & self.alive(state))
        return state


def step(model, batch):
    inputs, target = batch
    state = model(inputs["seed"], inputs["fire"])
    picture = F.mse_loss(state[:, :4], target)
    overflow = (state - state.clamp(-1, 1)).abs().mean()
    return {"loss": picture + 0.1 * overflow, "picture": picture}


class Adam(torch.optim.Optimizer):
    """Keras's: epsilon beside the uncorrected root, and each tensor's gradient cut to a norm."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-7, clipnorm=None):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "clipnorm": clipnorm})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                g = p.grad
                if group["clipnorm"] is not None:
                    g = g * (group["clipnorm"] / g.norm()).clamp(max=1)
                state = self.state[p]
                if not state:
                    state["step"], state["m"], state["v"] = 0, torch.zeros_like(p), torch.zeros_like(p)
                state["step"] += 1
                state["m"].lerp_(g, 1 - b1)
                state["v"].lerp_(g * g, 1 - b2)
                rate = group["lr"] * (1 - b2 ** state["step"]) ** 0.5 / (1 - b1 ** state["step"])
                p.sub_(rate * state["m"] / (state["v"].sqrt() + group["eps"]))


def optimizer(parameters):
    adam = Adam(parameters, lr=4e-3, clipnorm=0.05)
    return adam, torch.optim.lr_scheduler.LambdaLR(adam, lambda done: 0.8 ** (done / 8))
