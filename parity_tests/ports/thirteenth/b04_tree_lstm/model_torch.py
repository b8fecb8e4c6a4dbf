import torch
import torch.nn as nn


class TreeSentiment(nn.Module):
    """Binary Tree-LSTM, gates fused into one product: input, left, right, output, update."""

    def __init__(self, vocabulary=30, dim=8, units=10, classes=3):
        super().__init__()
        self.units = units
        self.words = nn.Embedding(vocabulary, dim)
        self.leaf = nn.Linear(dim, 2 * units)
        self.compose = nn.Linear(2 * units, 5 * units)
        self.sentiment = nn.Linear(units, classes)
        nn.init.ones_(self.compose.bias.data[units : 3 * units])

    def forward(self, tokens, left, right):
        batch, length = tokens.shape
        rows = torch.arange(batch, device=tokens.device)
        gate, cell = self.leaf(self.words(tokens)).chunk(2, dim=-1)
        # Nodes are kept in a list, leaves first, and looked up through their stack.
        cs = list(cell.unbind(1))
        hs = list((gate.sigmoid() * cell.tanh()).unbind(1))
        for l, r in zip(left.long().unbind(1), right.long().unbind(1)):
            h, c = torch.stack(hs), torch.stack(cs)
            fused = self.compose(torch.cat((h[l, rows], h[r, rows]), dim=1))
            gates, update = fused.split([4 * self.units, self.units], dim=1)
            i, fl, fr, o = gates.sigmoid().chunk(4, dim=1)
            new = i * update.tanh() + fl * c[l, rows] + fr * c[r, rows]
            cs.append(new)
            hs.append(o * new.tanh())
        return self.sentiment(torch.stack(hs, dim=1))
