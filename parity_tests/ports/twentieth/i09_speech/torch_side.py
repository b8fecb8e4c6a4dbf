import torch
from torch import nn


class SpeakerNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.tdnn = nn.Sequential(
            nn.Conv1d(8, 16, 5, padding=2), nn.ReLU(), nn.Conv1d(16, 16, 3, padding=2, dilation=2), nn.ReLU()
        )
        self.embedding = nn.Linear(32, 20)
        self.classifier = nn.Linear(20, 5)

    def forward(self, frames, lengths):
        x = self.tdnn(frames.transpose(1, 2)).transpose(1, 2)
        spoken = (torch.arange(x.shape[1], device=x.device) < lengths[:, None])[..., None].to(x.dtype)
        count = lengths[:, None].to(x.dtype)
        mean = (x * spoken).mean(1)
        spread = ((x - mean[:, None]).square() * spoken).sum(1) / count
        x = torch.cat([mean, torch.sqrt(spread + 1e-5)], -1)
        return self.classifier(self.embedding(x).relu())


def loss(output, target, smoothing=0.1):
    target = target.long().view(-1)
    logs = output.log_softmax(-1)
    wanted = torch.full_like(logs, smoothing / (output.shape[-1] - 1))
    wanted.scatter_(1, target[:, None], 1 - smoothing)
    return -(wanted * logs).sum(-1).mean()
