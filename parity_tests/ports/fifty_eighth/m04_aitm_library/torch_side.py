import torch
import torch.nn.functional as F
from torch import nn


class LibraryFunnel(nn.Module):
    fields = ("branch", "age_band", "genre")

    def __init__(self, sizes=(8, 6, 10), embed=4, dense=5, wide=24, dim=12):
        super().__init__()
        self.dim = dim
        self.embeddings = nn.ModuleList(nn.Embedding(n, embed) for n in sizes)
        d_in = embed * len(sizes) + dense

        def bottom():
            return nn.Sequential(nn.Linear(d_in, wide), nn.ReLU(), nn.Linear(wide, dim), nn.ReLU())

        self.visit_bottom, self.reserve_bottom, self.loans_bottom = bottom(), bottom(), bottom()
        self.visit_out = nn.Linear(dim, 1)
        self.visit_to_reserve = nn.Linear(dim, dim)
        self.reserve_kqv = nn.Linear(dim, 3 * dim)
        self.reserve_out = nn.Linear(dim, 1)
        self.reserve_to_loans = nn.Linear(dim, dim)
        self.loans_kqv = nn.Linear(dim, 3 * dim)
        self.loans_out = nn.Linear(dim, 1)

    def blend(self, own, passed, kqv):
        k, q, v = kqv(torch.stack((own, passed))).chunk(3, dim=-1)
        own_score, passed_score = (k * q).sum(-1, keepdim=True) * self.dim**-0.5
        # a softmax over two is a sigmoid of their difference
        return torch.lerp(v[0], v[1], torch.sigmoid(passed_score - own_score))

    def forward(self, inputs):
        x = torch.cat(
            [e(inputs[f].long()) for e, f in zip(self.embeddings, self.fields)] + [inputs["habits"]], dim=1
        )
        visit = self.visit_bottom(x)
        reserve = self.blend(self.reserve_bottom(x), F.relu(self.visit_to_reserve(visit)), self.reserve_kqv)
        loans = self.blend(self.loans_bottom(x), F.relu(self.reserve_to_loans(reserve)), self.loans_kqv)
        visit = self.visit_out(visit)
        capped = torch.stack((self.reserve_out(reserve), visit.detach())).neg().logsumexp(0).neg()
        return {"visit": visit, "reserve": capped, "loans": self.loans_out(loans)}


def event_loss(outputs, targets):
    return F.binary_cross_entropy_with_logits(
        outputs, targets.to(outputs), pos_weight=outputs.new_tensor(3.0)
    )


def loans_loss(outputs, targets):
    return F.poisson_nll_loss(outputs, targets.to(outputs), log_input=True, full=False)


def build():
    return LibraryFunnel()
