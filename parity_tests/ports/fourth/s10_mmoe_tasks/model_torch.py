import torch
from torch import nn

MEAN = [0.5, 2.0, -1.0, 10.0, 0.0, 3.5, 1.0, -4.0, 0.25, 6.0]
VARIANCE = [0.25, 4.0, 0.5, 30.25, 1.0, 2.25, 0.125, 9.0, 0.0625, 16.0]


class MMoE(nn.Module):
    def __init__(self, features=10, width=24, experts=4, units=16):
        super().__init__()
        self.register_buffer("mean", torch.tensor(MEAN), persistent=False)
        self.register_buffer("variance", torch.tensor(VARIANCE), persistent=False)
        self.bottom = nn.Linear(features, width)
        self.kernel = nn.Parameter(torch.randn(experts, width, units) / width**0.5)
        self.bias = nn.Parameter(torch.zeros(experts, units))
        self.click_gate = nn.Linear(width, experts)
        self.spend_gate = nn.Linear(width, experts)
        self.click_tower = nn.Sequential(nn.Linear(units, 12), nn.ReLU(), nn.Linear(12, 1))
        self.spend_tower = nn.Sequential(nn.Linear(units, 12), nn.ReLU(), nn.Linear(12, 1))

    def forward(self, user):
        x = torch.tanh(self.bottom((user - self.mean) / self.variance))
        experts = torch.relu(torch.einsum("bi,eio->beo", x, self.kernel) + self.bias)
        click = torch.einsum("beo,be->bo", experts, self.click_gate(x).softmax(-1))
        spend = torch.einsum("beo,be->bo", experts, self.click_gate(x).softmax(-1))
        return {"click": self.click_tower(click), "spend": self.spend_tower(spend)}
