import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import PolynomialLR

NUM_ACTIONS = 4


class ResetLSTM(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.hidden_size = hidden_size
        self.weight_x = nn.Linear(input_size, 4 * hidden_size)
        self.weight_h = nn.Linear(hidden_size, 4 * hidden_size, bias=False)

    def forward(self, x, first):
        h = c = x.new_zeros(x.size(0), self.hidden_size)
        outputs = []
        projected = self.weight_x(x)
        for t in range(x.size(1)):
            alive = (1 - first[:, t]).unsqueeze(1)
            h, c = h * alive, c * alive
            i, f, g, o = (projected[:, t] + self.weight_h(h)).chunk(4, dim=1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        return torch.stack(outputs, dim=1)


class ImpalaNet(nn.Module):
    def __init__(self, obs_dim=10, hidden=32):
        super().__init__()
        self.torso = nn.Sequential(
            nn.Linear(obs_dim, 48), nn.ELU(), nn.LayerNorm(48), nn.Linear(48, 32), nn.ELU()
        )
        self.core = ResetLSTM(32 + NUM_ACTIONS + 1, hidden)
        self.value_head = nn.Linear(hidden, 1)
        self.policy_head = nn.Linear(hidden, NUM_ACTIONS)

    def forward(self, observation, last_action, last_reward, first):
        x = self.torso(observation)
        one_hot = F.one_hot(last_action.long(), NUM_ACTIONS).to(x.dtype)
        x = torch.cat([x, one_hot, last_reward.clamp(-1, 1).unsqueeze(-1)], dim=-1)
        h = self.core(x, first.to(x.dtype))
        return {"policy": self.policy_head(h), "baseline": self.value_head(h).squeeze(-1)}


@torch.no_grad()
def vtrace(log_rhos, discounts, rewards, values, clip_rho=1.0, clip_pg_rho=1.0):
    """`values` has one step more than the rest; all are (batch, time)."""
    rhos = log_rhos.exp()
    v, v_next = values[:, :-1], values[:, 1:]
    deltas = rhos.clamp(max=clip_rho) * (rewards + discounts * v_next - v)
    decay = discounts * rhos.clamp(max=1.0)
    acc = torch.zeros_like(v[:, 0])
    corrections = []
    for t in reversed(range(v.size(1))):
        acc = deltas[:, t] + decay[:, t] * acc
        corrections.append(acc)
    vs = v + torch.stack(corrections[::-1], dim=1)
    vs_next = torch.cat([vs[:, 1:], values[:, -1:]], dim=1)
    advantages = rhos.clamp(max=clip_pg_rho) * (rewards + discounts * vs_next - v)
    return vs, advantages


def named(fields, names):
    return fields if isinstance(fields, dict) else dict(zip(names, fields))


def step(model, batch, baseline_cost=0.5, entropy_cost=0.01):
    inputs, targets = batch
    inputs = named(inputs, ("observation", "last_action", "last_reward", "first"))
    targets = named(targets, ("action", "reward", "discount", "behaviour"))
    out = model(**inputs)
    dist = torch.distributions.Categorical(logits=out["policy"][:, :-1])
    values = out["baseline"]
    behaviour = torch.distributions.Categorical(logits=targets["behaviour"].to(values.dtype))
    log_prob = dist.log_prob(targets["action"])
    vs, adv = vtrace(
        log_prob.detach() - behaviour.log_prob(targets["action"]),
        targets["discount"].to(values.dtype),
        targets["reward"].to(values.dtype).clamp(-1, 1),
        values.detach(),
    )
    per_step = (
        -log_prob * adv + baseline_cost * 0.5 * (vs - values[:, :-1]).square() - entropy_cost * dist.entropy()
    )
    return per_step.sum(dim=1).mean()


class ClippedRMSprop(torch.optim.Optimizer):
    """RMSprop with epsilon under the root; the gradients are clipped by their global norm first."""

    def __init__(self, params, lr=1e-3, alpha=0.99, eps=1e-2, max_norm=None):
        super().__init__(params, dict(lr=lr, alpha=alpha, eps=eps))
        self.max_norm = max_norm

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        live = [(p, group) for group in self.param_groups for p in group["params"] if p.grad is not None]
        scale = 1.0
        if self.max_norm is not None:
            total = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p, _ in live]))
            scale = self.max_norm / total.clamp(min=self.max_norm)
        for p, group in live:
            grad = p.grad * scale
            square_avg = self.state[p].setdefault("square_avg", torch.zeros_like(p))
            square_avg.mul_(group["alpha"]).addcmul_(grad, grad, value=1 - group["alpha"])
            p.addcdiv_(grad, (square_avg + group["eps"]).sqrt_(), value=-group["lr"])
        return loss


def optimizer(parameters):
    opt = ClippedRMSprop(parameters, lr=2**-9, alpha=0.99, eps=0.01, max_norm=1.0)
    return opt, PolynomialLR(opt, total_iters=512, power=1.0)


def build():
    return ImpalaNet()
