import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, dim=14, chunk=4):
        super().__init__()
        self.chunk = chunk
        self.embed = nn.Sequential(nn.Linear(6, dim), nn.Tanh())
        self.goal = nn.Sequential(nn.Linear(4, 20), nn.ReLU())
        self.film = nn.Linear(20, 2 * dim)
        self.lstm = nn.LSTM(dim, dim, batch_first=True)
        nn.init.zeros_(self.lstm.bias_hh_l0).requires_grad_(False)
        self.h0 = nn.Parameter(torch.zeros(1, 1, dim))
        self.c0 = nn.Parameter(torch.zeros(1, 1, dim))
        self.norm = nn.LayerNorm(dim)
        self.action = nn.Linear(dim, 3)

    def forward(self, joints, goal):
        b = joints.shape[0]
        p = self.embed(joints)
        gamma, beta = self.film(self.goal(goal)).unsqueeze(1).chunk(2, dim=-1)
        p = p + gamma * p + beta
        h, c = self.h0.repeat(1, b, 1), self.c0.repeat(1, b, 1)
        outs = []
        for piece in p.split(self.chunk, dim=1):
            y, (h, c) = self.lstm(piece, (h, c))
            h = h.detach()
            outs.append(y)
        out = self.norm(torch.cat(outs, dim=1) + p)
        return torch.tanh(self.action(out))
