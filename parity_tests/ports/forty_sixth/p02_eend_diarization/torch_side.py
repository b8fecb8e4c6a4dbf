from itertools import permutations

import torch
import torch.nn as nn
import torch.nn.functional as F


class AttractorEDA(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.encoder = nn.GRU(dim, dim, batch_first=True)
        self.decoder = nn.GRU(dim, dim, batch_first=True)
        self.exist = nn.Linear(dim, 1)

    def forward(self, emb, lengths, count):
        packed = nn.utils.rnn.pack_padded_sequence(emb, lengths.cpu(), batch_first=True, enforce_sorted=False)
        _, state = self.encoder(packed)
        attractors, _ = self.decoder(emb.new_zeros(emb.size(0), count, emb.size(2)), state)
        return attractors, self.exist(attractors.detach()).squeeze(-1)


class EendEda(nn.Module):
    def __init__(self, n_mels=24, dim=32, n_heads=2, n_layers=2, max_speakers=3):
        super().__init__()
        self.max_speakers = max_speakers
        self.eda = AttractorEDA(dim)
        self.linear_in = nn.Linear(n_mels, dim)
        self.norm_in = nn.LayerNorm(dim)
        layer = nn.TransformerEncoderLayer(
            dim, n_heads, 2 * dim, dropout=0.0, activation="relu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(
            layer, n_layers, norm=nn.LayerNorm(dim), enable_nested_tensor=False
        )

    def forward(self, features, lengths):
        lengths = lengths.long()
        padding = torch.arange(features.size(1), device=features.device) >= lengths[:, None]
        emb = self.norm_in(self.linear_in(features))
        emb = self.encoder(emb, src_key_padding_mask=padding)
        attractors, exists = self.eda(emb, lengths, self.max_speakers + 1)
        return emb @ attractors[:, :-1].transpose(1, 2), exists


def pit_loss(logits, labels, lengths):
    valid = torch.arange(logits.size(1), device=logits.device) < lengths[:, None]
    candidates = []
    for order in permutations(range(labels.size(2))):
        frames = F.binary_cross_entropy_with_logits(logits, labels[..., list(order)], reduction="none").mean(
            -1
        )
        candidates.append((frames * valid).sum(1))
    return torch.stack(candidates, 1).amin(1).sum() / lengths.sum()


def existence_loss(logits, n_speakers):
    index = torch.arange(logits.size(1), device=logits.device)
    labels = (index < n_speakers[:, None]).to(logits.dtype)
    used = index <= n_speakers[:, None]
    loss = F.binary_cross_entropy_with_logits(logits, labels, reduction="none") * used
    return (loss.sum(1) / used.sum(1)).mean()


def unpack(batch, names):
    return [batch[n] for n in names] if isinstance(batch, dict) else batch


def step(model, batch):
    inputs, targets = batch
    features, lengths = unpack(inputs, ("features", "lengths"))
    speech, speakers = unpack(targets, ("speech", "speakers"))
    logits, exists = model(features, lengths)
    return pit_loss(logits, speech.to(logits.dtype), lengths.long()) + existence_loss(exists, speakers.long())


def optimizer(parameters, peak=2e-3, warmup=30):
    adam = torch.optim.Adam(parameters, lr=peak, betas=(0.9, 0.98), eps=1e-9)

    def noam(n):
        n = max(n, 1)
        return min(n / warmup, (warmup / n) ** 0.5)

    return adam, torch.optim.lr_scheduler.LambdaLR(adam, noam)


def build():
    return EendEda()
