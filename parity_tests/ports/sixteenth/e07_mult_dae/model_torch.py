import torch
import torch.nn.functional as F
from torch import nn


class DenoisingAutoencoder(nn.Module):
    """Weights of the encoder are used again, transposed, in the decoder, which has only biases of its own."""

    def __init__(self, n_items=50, n_groups=4, widths=(24, 10)):
        super().__init__()
        sizes = [n_items, *widths]
        self.encoder = nn.ModuleList(nn.Linear(i, o) for i, o in zip(sizes, sizes[1:]))
        self.decoder_bias = nn.ParameterList(nn.Parameter(torch.zeros(size)) for size in reversed(sizes[:-1]))
        self.group_gain = nn.Embedding(n_groups, sizes[-1])
        self.group_shift = nn.Embedding(n_groups, sizes[-1])
        nn.init.zeros_(self.group_gain.weight)

    def forward(self, clicks, group):
        x = F.dropout(F.normalize(clicks, dim=1), 0.5, self.training)
        x = self.encoder[1](self.encoder[0](x).tanh())
        x = torch.addcmul(x + self.group_shift(group), x, self.group_gain(group))
        x = F.linear(x, self.encoder[1].weight.t(), self.decoder_bias[0]).tanh()
        return F.linear(x, self.encoder[0].weight.t(), self.decoder_bias[1])


def multinomial(output, target):
    clicks = target.sum(1)
    each = output.logsumexp(1) * clicks - (output * target).sum(1)
    return (each * clicks.rsqrt()).mean()
