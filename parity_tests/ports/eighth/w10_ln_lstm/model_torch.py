import torch
from torch import nn


class LayerNormLSTM(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.hidden = hidden
        self.ih = nn.Linear(inputs, 4 * hidden, bias=False)
        self.hh = nn.Linear(hidden, 4 * hidden, bias=False)
        self.ln_ih = nn.LayerNorm(4 * hidden)
        self.ln_hh = nn.LayerNorm(4 * hidden)
        self.ln_cell = nn.LayerNorm(hidden)

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], self.hidden)
        gates_x = self.ln_ih(self.ih(x))
        outputs = []
        for gx in gates_x.unbind(1):
            i, f, g, o = (gx + self.ln_hh(self.hh(h))).chunk(4, dim=-1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            c = self.ln_cell(c)
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        return torch.stack(outputs, dim=1)


def last(outputs, lengths):
    """The output of each sequence's last step."""
    index = lengths.long().clamp(max=outputs.shape[1] - 1)
    return outputs[torch.arange(outputs.shape[0], device=outputs.device), index]


class Net(nn.Module):
    def __init__(self, features=4, hidden=14, classes=4):
        super().__init__()
        self.left_to_right = LayerNormLSTM(features, hidden)
        self.right_to_left = LayerNormLSTM(features, hidden)
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(2 * hidden, classes))

    def forward(self, x, length):
        ltr = last(self.left_to_right(x), length)
        rtl = last(self.right_to_left(x.flip(1)), length)
        return self.head(torch.cat([ltr, rtl], dim=-1))
