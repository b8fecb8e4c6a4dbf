import torch
from torch import nn
from torch.distributions import Categorical, MixtureSameFamily, Normal

D, HIDDEN, MIX = 6, 30, 3


class MaskedLinear(nn.Linear):
    def __init__(self, mask):
        super().__init__(mask.shape[1], mask.shape[0])
        self.register_buffer("mask", mask)

    def forward(self, x):
        return nn.functional.linear(x, self.weight * self.mask, self.bias)


class Conditionals(nn.Module):
    """Flat head -> (B, D, [logit, mean, log sd], MIX)."""

    def forward(self, x):
        return x.unflatten(-1, (D, 3, MIX))


def build():
    order = torch.arange(1, D + 1)
    hidden = torch.arange(HIDDEN) % (D - 1) + 1
    out = order.repeat_interleave(3 * MIX)
    return nn.Sequential(
        MaskedLinear(hidden[:, None] >= order),
        nn.Mish(),
        MaskedLinear(hidden[:, None] >= hidden),
        nn.Mish(),
        MaskedLinear(out[:, None] > hidden),
        Conditionals(),
    )


def mixture_nll(y_pred, y_true):
    logits, mean, log_sd = y_pred.unbind(2)
    mix = MixtureSameFamily(
        Categorical(logits=logits, validate_args=False),
        Normal(mean, log_sd.clamp(-4.0, 4.0).exp(), validate_args=False),
        validate_args=False,
    )
    return -mix.log_prob(y_true).sum(-1).mean()
