import torch
import torch.nn as nn
import torch.nn.functional as F


class SubGraph(nn.Module):
    def __init__(self, n_in, width):
        super().__init__()
        self.fc1, self.ln1 = nn.Linear(n_in, width), nn.LayerNorm(width)
        self.fc2, self.ln2 = nn.Linear(2 * width, width), nn.LayerNorm(width)

    def forward(self, poly):  # B, N, P, F
        h = F.relu(self.ln1(self.fc1(poly)))
        h = torch.cat((h, h.amax(2, keepdim=True).expand_as(h)), dim=-1)
        g = F.relu(self.ln2(self.fc2(h))).amax(2)
        return g.repeat(1, 1, 2)


class GlobalLayer(nn.Module):
    def __init__(self, dim, heads=2, ff=48):
        super().__init__()
        self.heads = heads
        self.ln_attn = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, ff), nn.SiLU(), nn.Linear(ff, dim))

    def forward(self, x, visible):
        b, n, d = x.shape
        q, k, v = self.qkv(self.ln_attn(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=visible[:, None, None, :])
        x = x + self.proj(y.transpose(1, 2).reshape(b, n, d))
        return x + self.mlp(x)


class VectorNet(nn.Module):
    def __init__(self, n_feats=5, dim=32, n_modes=3, n_steps=6):
        super().__init__()
        self.n_modes, self.n_steps = n_modes, n_steps
        self.map_graph = SubGraph(n_feats, dim // 2)
        self.agent_graph = SubGraph(n_feats, dim // 2)
        self.context = nn.ModuleList([GlobalLayer(dim), GlobalLayer(dim)])
        self.final_norm = nn.LayerNorm(dim)
        self.confidence = nn.Linear(dim, n_modes)
        self.velocity = nn.Linear(dim, n_modes * n_steps * 2)

    def forward(self, walkers, walker_mask, kerbs):
        x = torch.cat((self.agent_graph(walkers), self.map_graph(kerbs)), 1)
        visible = F.pad(walker_mask > 0, (0, kerbs.shape[1]), value=True)
        for layer in self.context:
            x = layer(x, visible)
        z = self.final_norm(x[:, 0])
        traj = self.velocity(z).view(-1, self.n_modes, self.n_steps, 2).cumsum(2)
        return torch.cat((traj.flatten(2), self.confidence(z).unsqueeze(2)), 2)


def best_mode_loss(outputs, targets):
    b, k, _ = outputs.shape
    traj, logits = outputs[:, :, :-1].reshape(b, k, -1, 2), outputs[:, :, -1]
    xy, known = targets.split((2, 1), dim=-1)
    w = known.squeeze(-1) / known.sum(1)
    dist = ((traj - xy.unsqueeze(1)).pow(2).sum(-1) + 1e-4).sqrt()
    ade = torch.einsum("bkt,bt->bk", dist, w)
    value, winner = ade.min(1)
    return value.mean() + 0.3 * F.cross_entropy(logits, winner)


def build():
    return VectorNet()
