import torch
import torch.nn as nn
import torch.nn.functional as F


class TDNN(nn.Module):
    def __init__(self, c_in, c_out, dilation):
        super().__init__()
        self.left = 2 * dilation
        self.conv = nn.Conv1d(c_in, c_out, 3, dilation=dilation)
        self.norm = nn.GroupNorm(1, c_out, eps=1e-3)

    def forward(self, h):
        h = self.conv(F.pad(h, (self.left, 0)))
        return F.relu(self.norm(h))


def add_deltas(x):
    d = (torch.roll(x, -1, dims=1) - torch.roll(x, 1, dims=1)) / 2
    return torch.cat([x, d], dim=2)


class KeywordSpotter(nn.Module):
    def __init__(self, mels=10, words=6):
        super().__init__()
        self.tdnn1 = TDNN(2 * mels, 16, 1)
        self.tdnn2 = TDNN(16, 16, 2)
        self.frame_embedding = nn.Linear(16, 20)
        self.segment = nn.Linear(40, 24)
        self.words = nn.Linear(24, words)

    def pool(self, h, n_frames):
        valid = (torch.arange(h.shape[1], device=h.device) < n_frames).to(h.dtype).unsqueeze(-1)
        mean = (h * valid).mean(dim=1)
        var = (valid * (h - mean.unsqueeze(1)) ** 2).sum(dim=1) / n_frames.to(h.dtype)
        return torch.cat([mean, torch.sqrt(var + 1e-5)], dim=1)

    def forward(self, frames, n_frames):
        h = add_deltas(frames).transpose(1, 2)
        h = self.tdnn1(h)
        h = h + self.tdnn2(h)
        h = F.gelu(self.frame_embedding(h.transpose(1, 2)))
        return self.words(torch.tanh(self.segment(self.pool(h, n_frames))))


def build():
    return KeywordSpotter()
