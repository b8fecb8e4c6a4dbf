import torch
from torch import nn
from torch.nn import functional as F


def delay_network(order, theta):
    q = torch.arange(order, dtype=torch.float64)
    r = (2 * q + 1) / theta
    i, j = q[:, None], q[None, :]
    sign = torch.where(i < j, torch.tensor(-1.0, dtype=torch.float64), torch.pow(-1.0, i - j + 1))
    A = r[:, None] * sign
    B = r * torch.pow(-1.0, q)
    eye = torch.eye(order, dtype=torch.float64)
    return torch.linalg.solve(eye - A / 2, eye + A / 2), torch.linalg.solve(eye - A / 2, B)


class LMU(nn.Module):
    def __init__(self, input_size, hidden_size, memory_size, theta):
        super().__init__()
        self.hidden_size, self.memory_size = hidden_size, memory_size
        A, B = delay_network(memory_size, theta)
        self.register_buffer("A", A)
        self.register_buffer("B", B)
        self.e_x = nn.Parameter(torch.randn(input_size) * input_size**-0.5)
        self.e_h = nn.Parameter(torch.randn(hidden_size) * hidden_size**-0.5)
        self.e_m = nn.Parameter(torch.zeros(memory_size))
        self.W_x = nn.Linear(input_size, hidden_size, bias=False)
        self.W_h = nn.Linear(hidden_size, hidden_size, bias=False)
        self.W_m = nn.Linear(memory_size, hidden_size, bias=False)

    def forward(self, x):
        A, B = self.A.to(x.dtype), self.B.to(x.dtype)
        h = x.new_zeros(x.size(0), self.hidden_size)
        m = x.new_zeros(x.size(0), self.memory_size)
        # What depends on the input alone, for all steps at once
        drive, shift = x @ self.e_x, self.W_x(x)
        for t in range(x.size(1)):
            u = drive[:, t] + h @ self.e_h + m @ self.e_m
            m = F.linear(m, A) + torch.outer(u, B)
            h = torch.tanh(shift[:, t] + self.W_h(h) + self.W_m(m))
        return h


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lmu = LMU(1, hidden_size=20, memory_size=8, theta=16.0)
        self.out = nn.Linear(20, 1)

    def forward(self, series):
        return self.out(self.lmu(series))


def loss(output, target):
    return F.mse_loss(output.squeeze(-1), target.reshape(-1).to(output.dtype))
