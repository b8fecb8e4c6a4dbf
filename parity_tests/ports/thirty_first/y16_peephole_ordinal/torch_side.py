import torch
import torch.nn as nn
import torch.nn.functional as F


class PeepholeLSTM(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.hidden_size = hidden_size
        self.x2h = nn.Linear(input_size, 4 * hidden_size)
        self.h2h = nn.Linear(hidden_size, 4 * hidden_size, bias=False)
        self.peep_i = nn.Parameter(torch.randn(hidden_size) * 0.3)
        self.peep_f = nn.Parameter(torch.randn(hidden_size) * 0.3)
        self.peep_o = nn.Parameter(torch.randn(hidden_size) * 0.3)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], self.hidden_size)
        c = torch.zeros_like(h)
        gates_x = self.x2h(x)
        hs = []
        for g_x in gates_x.unbind(1):
            i, f, g, o = (g_x + self.h2h(h)).chunk(4, dim=-1)
            i = torch.sigmoid(i + self.peep_i * c)
            f = torch.sigmoid(f + 1 + self.peep_f * c)
            c = f * c + i * g.tanh()
            h = torch.sigmoid(o + self.peep_o * c) * c.tanh()
            hs.append(h)
        return torch.stack(hs, 1)


class OrdinalHead(nn.Module):
    def __init__(self, dim, n_levels):
        super().__init__()
        self.w = nn.Linear(dim, 1, bias=False)
        self.theta0 = nn.Parameter(torch.tensor([-1.0]))
        self.delta = nn.Parameter(torch.zeros(n_levels - 2))

    def forward(self, x):
        thresholds = torch.cat([self.theta0, self.theta0 + F.softplus(self.delta).cumsum(0)])
        return self.w(x) - thresholds


class SeverityNet(nn.Module):
    def __init__(self, n_in=4, hidden=14, n_levels=5):
        super().__init__()
        self.rnn = PeepholeLSTM(n_in, hidden)
        self.ln = nn.LayerNorm(hidden, eps=1e-3)
        self.fc = nn.Linear(2 * hidden, 12)
        self.act = nn.LeakyReLU(0.2)
        self.head = OrdinalHead(12, n_levels)

    def forward(self, x):
        s = self.ln(self.rnn(x))
        return self.head(self.act(self.fc(torch.cat([s.mean(1), s[:, -1]], dim=-1))))


def build():
    return SeverityNet()


def loss(outputs, targets):
    levels = torch.arange(outputs.shape[1], device=outputs.device)
    t = (targets.view(-1, 1).long() > levels).to(outputs.dtype)
    return F.binary_cross_entropy_with_logits(outputs, t, reduction="none").sum(1).mean()
