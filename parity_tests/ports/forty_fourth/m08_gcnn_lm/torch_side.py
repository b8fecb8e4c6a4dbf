import torch
import torch.nn.functional as F
from torch import nn


class CausalGLU(nn.Module):
    def __init__(self, c_in, c_out, k, dilation=1):
        super().__init__()
        self.left = (k - 1) * dilation
        self.conv = nn.Conv1d(c_in, 2 * c_out, k, dilation=dilation)

    def forward(self, x):
        return F.glu(self.conv(F.pad(x, (self.left, 0))), dim=1)


class Residual(nn.Module):
    def __init__(self, dim, inner, k, dilation):
        super().__init__()
        self.path = nn.Sequential(
            CausalGLU(dim, inner, 1),
            CausalGLU(inner, inner, k, dilation),
            CausalGLU(inner, dim, 1),
        )

    def forward(self, x):
        return x + self.path(x)


class GCNN(nn.Module):
    """Dauphin et al. 2017, with Grave et al.'s adaptive softmax on top."""

    def __init__(self, n_words=180, dim=48, inner=20, k=4, dilations=(1, 2, 2), cutoffs=(40, 100)):
        super().__init__()
        self.decoder = nn.AdaptiveLogSoftmaxWithLoss(
            dim, n_words, list(cutoffs), div_value=2.0, head_bias=False
        )
        self.lookup = nn.Embedding(n_words, dim)
        nn.init.normal_(self.lookup.weight, std=0.1)
        self.body = nn.Sequential(CausalGLU(dim, dim, k), *[Residual(dim, inner, k, d) for d in dilations])

    def forward(self, tokens, targets=None):
        h = self.body(self.lookup(tokens).mT).mT
        flat = h.flatten(0, 1)
        if targets is not None:
            return self.decoder(flat, targets.flatten()).loss
        return self.decoder.log_prob(flat).unflatten(0, tokens.shape)


def build():
    return GCNN()


def step(model, batch):
    tokens, targets = batch
    return model(tokens.long(), targets.long())


def optimizer(parameters, max_norm=0.125):
    opt = torch.optim.SGD(parameters, lr=0.5, momentum=0.875, nesterov=True)

    def clip(opt, args, kwargs):
        grads = [p.grad for group in opt.param_groups for p in group["params"] if p.grad is not None]
        scale = max_norm / nn.utils.get_total_norm(grads).clamp(min=max_norm)
        torch._foreach_mul_(grads, scale)

    opt.register_step_pre_hook(clip)
    return opt
