import torch
from torch import Tensor, nn


class RunningScale(nn.Module):
    mean: Tensor
    square: Tensor

    def __init__(self, features: int, decay: float = 0.95):
        super().__init__()
        self.decay = decay
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("square", torch.ones(features))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                rows = x.flatten(0, 1)
                self.mean.lerp_(rows.mean(0), 1 - self.decay)
                self.square.lerp_(rows.square().mean(0), 1 - self.decay)
        std = (self.square - self.mean**2).clamp_min(1e-2).sqrt()
        return (x - self.mean) / std


def mlp(inputs: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.LayerNorm(width))


def take(nodes: Tensor, index: Tensor) -> Tensor:
    return nodes.gather(1, index.long()[..., None].expand(-1, -1, nodes.shape[-1]))


class Interaction(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.edge = mlp(3 * width, width)
        self.node = mlp(2 * width, width)

    def forward(self, nodes, edges, senders, receivers, mask):
        edges = edges + self.edge(torch.cat([edges, take(nodes, senders), take(nodes, receivers)], -1))
        index = receivers.long()[..., None].expand_as(edges)
        arriving = torch.zeros_like(nodes).scatter_add(1, index, edges * mask[..., None])
        return nodes + self.node(torch.cat([nodes, arriving], -1)), edges


class Simulator(nn.Module):
    def __init__(self, features: int = 6, width: int = 12, rounds: int = 3):
        super().__init__()
        self.scale = RunningScale(features)
        self.encode_nodes = mlp(features, width)
        self.encode_edges = mlp(3, width)
        self.rounds = nn.ModuleList(Interaction(width) for _ in range(rounds))
        self.decode = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, pos, vel, senders, receivers, edge_mask):
        offset = take(pos, senders) - take(pos, receivers)
        distance = (offset.square().sum(-1, keepdim=True) + 1e-6).sqrt()
        nodes = self.encode_nodes(self.scale(vel))
        edges = self.encode_edges(torch.cat([offset, distance], -1))
        for interaction in self.rounds:
            nodes, edges = interaction(nodes, edges, senders, receivers, edge_mask)
        return self.decode(nodes)


def loss(output: Tensor, target: Tensor) -> Tensor:
    acceleration, free = target.split([2, 1], dim=-1)
    error = (output - acceleration).square() * free
    return (error.sum((1, 2)) / free.sum((1, 2))).mean()
