"""The spiking network in PyTorch, one cell a time step through both layers."""

import torch
from torch import nn


class FastSigmoidSpike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v):
        ctx.save_for_backward(v)
        return (v > 0).to(v.dtype)

    @staticmethod
    def backward(ctx, upstream):
        (v,) = ctx.saved_tensors
        return upstream * (1 + 5 * v.abs()).pow(-2)


class Cell(nn.Module):
    def __init__(self, inputs, units):
        super().__init__()
        self.synapse = nn.Linear(inputs, units)
        self.recurrent = nn.Linear(units, units, bias=False)
        self.leak = nn.Parameter(torch.full((units,), 2.0))
        nn.init.xavier_uniform_(self.synapse.weight)
        nn.init.normal_(self.recurrent.weight, std=0.1)
        nn.init.zeros_(self.synapse.bias)

    def forward(self, x, state):
        v, s = state
        v = torch.sigmoid(self.leak) * v + self.synapse(x) + self.recurrent(s) - s.detach()
        return v, FastSigmoidSpike.apply(v - 1)


class Net(nn.Module):
    def __init__(self, channels=10, widths=(16, 12), classes=4, decay=0.8):
        super().__init__()
        self.cells = nn.ModuleList(Cell(i, o) for i, o in zip((channels, *widths), widths))
        self.readout = nn.Linear(widths[-1], classes)
        self.widths, self.decay = widths, decay
        nn.init.xavier_uniform_(self.readout.weight)
        nn.init.zeros_(self.readout.bias)

    def forward(self, events):
        states = [(events.new_zeros(len(events), w),) * 2 for w in self.widths]
        potential, history = 0, []
        for x in events.unbind(1):
            for i, cell in enumerate(self.cells):
                states[i] = cell(x, states[i])
                x = states[i][1]
            potential = self.decay * potential + (1 - self.decay) * self.readout(x)
            history.append(potential)
        return torch.stack(history).mean(0)
