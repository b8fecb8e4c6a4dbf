import torch
from torch import nn
from torch.nn import functional as F


class KNRM(nn.Module):
    def __init__(self, vocabulary=50, dim=8):
        super().__init__()
        self.embeddings = nn.Embedding(vocabulary, dim)
        nn.init.normal_(self.embeddings.weight, std=0.05)
        self.kernels = [(1.0, 0.02)] + [(mu, 0.2) for mu in (0.8, 0.4, 0.0, -0.4, -0.8)]
        self.dense = nn.Linear(len(self.kernels), 1)

    def match(self, query, documents):
        """Query (b, q), documents (b, n, t); scores (b, n)."""
        q = F.normalize(self.embeddings(query), dim=-1)[:, None]
        d = F.normalize(self.embeddings(documents), dim=-1)
        cosine = q @ d.mT  # b, n, q, t
        padding = (documents == 0)[:, :, None]
        soft_tf = [
            torch.exp(-0.5 * ((cosine - mu) / sigma) ** 2).masked_fill(padding, 0).sum(-1)
            for mu, sigma in self.kernels
        ]
        log_tf = torch.stack(soft_tf, dim=-1).clamp_min(1e-6).log() * 0.1
        phi = torch.einsum("bnqk,bq->bnk", log_tf, (query != 0).to(log_tf.dtype))
        return self.dense(phi).tanh().squeeze(-1)

    def forward(self, query, clicked, skipped):
        return self.match(query, torch.stack([clicked, skipped], dim=1))


def loss(outputs, targets):
    clicked, skipped = outputs.unbind(1)
    return (targets.squeeze(1) - (clicked - skipped)).clamp(min=0).mean()
