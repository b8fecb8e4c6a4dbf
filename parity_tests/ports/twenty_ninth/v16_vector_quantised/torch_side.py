import torch.nn as nn
import torch.nn.functional as F

COMMIT = 0.25


class VQ(nn.Module):
    def __init__(self, n_codes, dim):
        super().__init__()
        self.embedding = nn.Embedding(n_codes, dim)
        nn.init.normal_(self.embedding.weight, std=0.5)

    def forward(self, z):
        flat = z.reshape(-1, z.shape[-1])
        e = self.embedding.weight
        score = -2 * flat @ e.t()
        return self.embedding(score.argmin(dim=1)).view_as(z)


class MotionVQ(nn.Module):
    def __init__(self, joints=5, patch=4, hidden=14, dim=4, n_codes=9):
        super().__init__()
        self.patch, self.joints = patch, joints
        self.enc = nn.Conv1d(joints, hidden, patch, stride=patch)
        self.pre = nn.Conv1d(hidden, dim, 1)
        self.vq = VQ(n_codes, dim)
        self.dec = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, patch * joints))

    def latent(self, x):
        z = self.pre(F.gelu(self.enc(x.transpose(1, 2)))).transpose(1, 2)
        return z, self.vq(z)

    def reconstruct(self, z, q):
        st = z + (q - z).detach()
        return self.dec(st).unflatten(-1, (self.patch, self.joints)).flatten(1, 2)

    def forward(self, x):
        return self.reconstruct(*self.latent(x))


def step(model, batch):
    x, y = batch
    z, q = model.latent(x)
    rec = F.mse_loss(model.reconstruct(z, q), y)
    codebook = F.mse_loss(q, z.detach())
    commit = F.mse_loss(z, q.detach())
    return rec + COMMIT * codebook + commit


def build():
    return MotionVQ()
