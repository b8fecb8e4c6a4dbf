import torch
from torch import nn

CARDINALITIES = (40, 30, 12, 4)
DENSE = 6
DIM = 8


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.ModuleList(nn.Embedding(n, 1) for n in CARDINALITIES)
        self.factors = nn.ModuleList(nn.Embedding(n, DIM) for n in CARDINALITIES)
        self.norm = nn.LayerNorm(DENSE, eps=1e-3)
        self.dense_factor = nn.Linear(DENSE, DIM, bias=False)
        self.dense_linear = nn.Linear(DENSE, 1)
        width = (len(CARDINALITIES) + 1) * DIM + DENSE
        self.deep = nn.Sequential(
            nn.Linear(width, 48),
            nn.PReLU(48),
            nn.Dropout(0.2),
            nn.Linear(48, 24),
            nn.PReLU(24),
            nn.Dropout(0.2),
            nn.Linear(24, 1),
        )

    def forward(self, sparse, dense):
        ids = sparse.long().unbind(1)
        x = self.norm(dense)
        fields = torch.stack([e(i) for e, i in zip(self.factors, ids)], dim=1)
        linear = self.dense_linear(x) + sum(e(i) for e, i in zip(self.linear, ids))
        v = torch.cat([fields, self.dense_factor(x).unsqueeze(1)], dim=1)
        pairwise = 0.5 * (fields.sum(1).square() - fields.square().sum(1)).sum(1, keepdim=True)
        deep = self.deep(torch.cat([v.flatten(1), x], dim=1))
        return linear + pairwise + deep


class AdamW(torch.optim.Optimizer):
    """Decoupled decay, epsilon added before the bias correction (as TensorFlow has it)."""

    def __init__(self, params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            lr, (b1, b2) = group["lr"], group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state.update(step=0, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
                state["step"] += 1
                m = state["exp_avg"].lerp_(p.grad, 1 - b1)
                v = state["exp_avg_sq"].lerp_(p.grad.square(), 1 - b2)
                rate = lr * (1 - b2 ** state["step"]) ** 0.5 / (1 - b1 ** state["step"])
                p.mul_(1 - lr * group["weight_decay"])
                p.addcdiv_(m, v.sqrt() + group["eps"], value=-rate)


def optimizer(model):
    params = list(model.parameters() if isinstance(model, nn.Module) else model)
    matrices = [p for p in params if p.ndim > 1]
    vectors = [p for p in params if p.ndim <= 1]
    return AdamW([{"params": matrices, "weight_decay": 1e-2}, {"params": vectors}], lr=2e-3)
