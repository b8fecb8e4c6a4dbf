import torch
from torch import nn
from torch.nn import functional as F


class CrowdNet(nn.Module):
    def __init__(self, classes=4, annotators=5):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, groups=8, bias=False),  # depthwise, two filters a channel
            nn.Conv2d(16, 12, 1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.classifier = nn.Sequential(
            nn.Linear(48, 32), nn.ReLU(), nn.Dropout(), nn.Linear(32, classes), nn.Softmax(-1)
        )
        self.confusion = nn.Parameter(torch.eye(classes).repeat(annotators, 1, 1))

    def forward(self, x):
        truth = self.classifier(self.features(x))
        return torch.matmul(truth[:, None, None], self.confusion).squeeze(2)


def crowd_loss(outputs, y, missing=-1):
    y = y.long()
    nll = F.cross_entropy(outputs.mT, y, ignore_index=missing, reduction="none")
    return (nll.sum(1) / y.ne(missing).sum(1).clamp_min(1)).mean()
