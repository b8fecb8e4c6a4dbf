import torch
from torch import nn


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential()
        channels = 1
        for i, out in enumerate((8, 16, 16), 1):
            self.backbone.add_module(f"conv{i}", nn.Conv2d(channels, out, 3, padding=1))
            self.backbone.add_module(f"norm{i}", nn.GroupNorm(4, out, eps=1e-3))
            self.backbone.add_module(f"act{i}", nn.LeakyReLU(0.1))
            self.backbone.add_module(f"pool{i}", nn.AvgPool2d(2))
            channels = out
        self.trunk = nn.Linear(16 * 3 * 3, 48)
        self.label_head = nn.Linear(48, 3)
        self.box_head = nn.Sequential(nn.Linear(48, 4), nn.Sigmoid())

    def forward(self, image):
        x = self.backbone(image)
        x = x.permute(0, 2, 3, 1).flatten(1)  # the order in which Keras flattens
        x = torch.relu(self.trunk(x))
        return {"label": self.label_head(x), "box": self.box_head(x)}
