import numpy as np
import torch
from torch import nn

N_ITEMS, N_CATS, SEQ_LEN = 900, 18, 20


def squash(s):
    n2 = s.square().sum(-1, keepdim=True)
    return n2 / (1 + n2) * s * torch.rsqrt(n2 + 1e-8)


class ItemTower(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.id = nn.Embedding(N_ITEMS, dim)
        self.cat = nn.Embedding(N_CATS, dim)
        self.register_buffer("cat_of", (torch.arange(N_ITEMS) * 7919) % N_CATS, persistent=False)

    def forward(self, items):
        return torch.stack([self.id(items), self.cat(self.cat_of[items])]).mean(0)


class MultiInterestExtractor(nn.Module):
    def __init__(self, dim, n_interests, iterations=3):
        super().__init__()
        self.S = nn.Linear(dim, dim, bias=False)
        self.iterations = iterations
        init = np.random.RandomState(2019).normal(size=(n_interests, SEQ_LEN)).astype(np.float32)
        self.register_buffer("routing_init", torch.from_numpy(init), persistent=False)

    def forward(self, behaviors, mask):
        u = self.S(behaviors)
        m = mask.unsqueeze(1)
        b = self.routing_init.to(u.dtype).expand(u.size(0), -1, -1)
        for _ in range(self.iterations - 1):
            caps = squash(b.softmax(1).masked_fill(~m, 0) @ u)
            b = b + caps @ u.detach().mT
        return squash(b.softmax(1).masked_fill(~m, 0) @ u)


class MindModel(nn.Module):
    def __init__(self, dim=32, n_interests=4, pow_p=2.0):
        super().__init__()
        self.n_interests, self.pow_p = n_interests, pow_p
        self.profile_emb = nn.ModuleList([nn.Embedding(n, 8) for n in (8, 30, 4)])
        self.item_tower = ItemTower(dim)
        self.time_emb = nn.Embedding(10, dim)
        self.extractor = MultiInterestExtractor(dim, n_interests)
        self.mlp = nn.Sequential(nn.Linear(dim + 24, 48), nn.ReLU(), nn.Linear(48, dim))
        rank = 1.0 / (np.arange(N_ITEMS) + 10.0) ** 0.8
        log_q = np.log(rank / rank.sum()).astype(np.float32)
        self.register_buffer("log_q", torch.from_numpy(log_q), persistent=False)

    def interests(self, history, gaps, profile):
        mask = history.ne(0)
        caps = self.extractor(self.item_tower(history) + self.time_emb(gaps), mask)
        prof = torch.cat([emb(ids) for emb, ids in zip(self.profile_emb, profile.unbind(1))], -1)
        out = self.mlp(torch.cat([caps, prof.unsqueeze(1).expand(-1, self.n_interests, -1)], -1))
        k_user = torch.log(mask.sum(1).double()).floor().clamp(1, self.n_interests)
        active = torch.arange(self.n_interests, device=out.device) < k_user.unsqueeze(1)
        return out, active

    def forward(self, history, gaps, profile, candidates):
        history, gaps, profile, candidates = (t.long() for t in (history, gaps, profile, candidates))
        interests, active = self.interests(history, gaps, profile)
        scores = torch.einsum("bcd,bkd->bck", self.item_tower(candidates), interests)
        attn = (self.pow_p * scores).masked_fill(~active.unsqueeze(1), -1e9).softmax(-1)
        logits = (attn * scores).sum(-1)
        if self.training:
            logits = logits - self.log_q.to(logits.dtype)[candidates]
        return logits


def build():
    return MindModel()
