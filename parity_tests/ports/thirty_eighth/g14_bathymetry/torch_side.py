import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm


class SeaFloor(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(20, 32), nn.SELU(), nn.Linear(32, 4 * 4 * 12), nn.SELU())
        self.up = nn.Sequential(
            weight_norm(nn.ConvTranspose2d(12, 12, 4, stride=2, padding=1)),
            nn.SELU(),
            weight_norm(nn.ConvTranspose2d(12, 12, 4, stride=2, padding=1)),
            nn.SELU(),
        )
        self.floor = nn.Conv2d(12, 1, 3, padding=1)

    def forward(self, x):
        h = self.fc(x).unflatten(1, (4, 4, 12)).permute(0, 3, 1, 2)
        return torch.tanh(self.floor(self.up(h))).squeeze(1)


def optimizer(parameters):
    opt = torch.optim.SGD(parameters, lr=0.1)
    return opt, torch.optim.lr_scheduler.MultiStepLR(opt, milestones=[15, 30], gamma=0.2)


def build():
    torch.manual_seed(0)
    return SeaFloor()
