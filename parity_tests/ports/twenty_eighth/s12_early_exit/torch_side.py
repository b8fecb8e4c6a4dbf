import torch.nn.functional as F
from torch import nn

TEMPERATURE = 3.0
DISTILL = 0.7
EARLY = 0.4


class EarlyExit(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(2, 8, 3, stride=2), nn.ReLU())
        self.norm = nn.LayerNorm(8)
        self.early_head = nn.Linear(8, classes)
        self.tail = nn.Sequential(
            nn.Conv2d(8, 12, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(12, 12, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
        )
        self.final_head = nn.Linear(12, classes)

    def forward(self, x):
        h = self.trunk(x.movedim(-1, 1))
        h = self.norm(h.movedim(1, -1)).movedim(-1, 1)
        early = self.early_head(h.mean(dim=(2, 3)))
        final = self.final_head(self.tail(h))
        return {"early": early, "final": final}


def build():
    return EarlyExit()


def step(model, batch):
    x, y = batch
    out = model(x)
    y = y.long()
    hard = F.cross_entropy(out["final"], y) + EARLY * F.cross_entropy(out["early"], y)
    student = F.log_softmax(out["early"] / TEMPERATURE, dim=-1)
    teacher = F.softmax(out["final"] / TEMPERATURE, dim=-1)
    soft = F.kl_div(student, teacher, reduction="batchmean") * TEMPERATURE**2
    return hard + DISTILL * soft
