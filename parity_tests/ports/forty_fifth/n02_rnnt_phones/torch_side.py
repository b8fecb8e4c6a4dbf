import torch
import torch.nn.functional as F
from torch import nn


def lengths_to_mask(lengths, size):
    return torch.arange(size, device=lengths.device).unsqueeze(0) < lengths.unsqueeze(1)


class CMVN(nn.Module):
    def __init__(self, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x, lengths):
        keep = lengths_to_mask(lengths, x.size(1)).unsqueeze(-1)
        n = lengths.to(x.dtype).view(-1, 1, 1)
        mu = x.masked_fill(~keep, 0).sum(1, keepdim=True) / n
        x = (x - mu).masked_fill(~keep, 0)
        return x * torch.rsqrt(x.square().sum(1, keepdim=True) / n + self.eps)


class Predictor(nn.Module):
    def __init__(self, vocab, dim, hidden, joint):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, hidden, batch_first=True)
        self.proj = nn.Linear(hidden, joint, bias=False)

    def forward(self, y):
        return self.proj(self.rnn(self.emb(F.pad(y, (1, 0))))[0])


class Encoder(nn.Module):
    def __init__(self, mels, channels, hidden, joint):
        super().__init__()
        self.cmvn = CMVN()
        self.conv = nn.Conv1d(mels, channels, 3)
        self.rnn1 = nn.GRU(channels, hidden, batch_first=True)
        self.ln1 = nn.LayerNorm(hidden, eps=1e-3)
        self.rnn2 = nn.GRU(2 * hidden, hidden, batch_first=True)
        self.ln2 = nn.LayerNorm(hidden, eps=1e-3)
        self.proj = nn.Linear(hidden, joint)

    def forward(self, x, lengths):
        x = self.cmvn(x, lengths).transpose(1, 2)
        x = F.relu(self.conv(F.pad(x, (2, 0)))).transpose(1, 2)
        x = self.ln1(self.rnn1(x)[0])
        b, t, h = x.shape
        x = x.reshape(b, t // 2, 2 * h)
        return self.proj(self.ln2(self.rnn2(x)[0]))


class RNNT(nn.Module):
    def __init__(self, mels=20, vocab=14, hidden=48, joint=40):
        super().__init__()
        self.predictor = Predictor(vocab, 24, hidden, joint)
        self.encoder = Encoder(mels, 32, hidden, joint)
        self.classifier = nn.Linear(joint, vocab)

    def forward(self, features, frames, labels):
        enc = self.encoder(features, frames.long())
        pred = self.predictor(labels.long())
        return self.classifier(torch.tanh(enc.unsqueeze(2) + pred.unsqueeze(1))).log_softmax(-1)


def rnnt_nll(log_probs, labels, t_lens, u_lens, blank=0):
    """Negative log likelihood of each sequence; the lattice is swept label by label."""
    b, t, u1, _ = log_probs.shape
    stay = log_probs[..., blank]
    index = labels[:, None, :, None].expand(b, t, u1 - 1, 1)
    emit = log_probs[:, :, :-1].gather(-1, index).squeeze(-1)
    # log probability of blanks only, from frame 0 up to each frame
    waited = F.pad(stay.cumsum(1)[:, :-1], (0, 0, 1, 0))

    column = waited[..., 0]
    lattice = [column]
    for u in range(1, u1):
        arrive = column + emit[..., u - 1]
        column = waited[..., u] + torch.logcumsumexp(arrive - waited[..., u], dim=1)
        lattice.append(column)
    total = torch.stack(lattice, dim=-1) + stay
    rows = torch.arange(b, device=labels.device)
    return -total[rows, t_lens - 1, u_lens]


def step(model, batch):
    inputs, labels = batch
    if isinstance(inputs, dict):
        inputs = inputs["features"], inputs["frames"], inputs["labels"]
    features, frames, prompt = inputs
    log_probs = model(features, frames, prompt)
    labels = labels.long()
    t_lens = torch.div(frames.long() + 1, 2, rounding_mode="floor")
    u_lens = labels.ne(0).sum(1)
    return (rnnt_nll(log_probs, labels, t_lens, u_lens) / u_lens).mean()


def build():
    return RNNT()
