import torch.nn as nn


class DuelingDQN(nn.Module):
    def __init__(self, in_channels=4, n_actions=5):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(in_channels, 8, kernel_size=5, stride=3),
            nn.ReLU(),
            nn.Conv2d(8, 12, kernel_size=3, stride=2),
            nn.ReLU(),
            nn.Conv2d(12, 12, kernel_size=2),
            nn.ReLU(),
        )
        self.value_stream = nn.Sequential(nn.Linear(108, 24), nn.ReLU(), nn.Linear(24, 1))
        self.advantage_stream = nn.Sequential(nn.Linear(108, 24), nn.ReLU(), nn.Linear(24, n_actions))

    def forward(self, frames):
        x = self.features(frames / 255.0)
        x = x.permute(0, 2, 3, 1).flatten(1)
        value = self.value_stream(x)
        adv = self.advantage_stream(x)
        return value + adv - adv.mean()


def build():
    return DuelingDQN()
