import torch
from torch import nn


class Branch(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder
        self.project = nn.Linear(16, 24)

    def forward(self, image):
        return torch.tanh(self.project(self.encoder(image).mean((2, 3))))


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        encoder = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU()
        )
        self.left = Branch(encoder)
        self.right = Branch(encoder)
        self.compare = nn.Linear(24, 16)
        self.same = nn.Linear(16, 2)

    def forward(self, left, right):
        distance = torch.abs(self.left(left) - self.right(right))
        return self.same(torch.relu(self.compare(distance)))
