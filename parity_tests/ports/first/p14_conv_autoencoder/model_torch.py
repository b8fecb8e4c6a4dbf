import torch
from torch import nn
from torch.nn import functional as F


class AutoEncoder(nn.Module):
    def __init__(self, code=24):
        super().__init__()
        self.encode1 = nn.Conv2d(1, 8, 3, stride=2)
        self.encode2 = nn.Conv2d(8, 16, 3, stride=2)
        self.code = nn.Linear(16 * 4 * 4, code)
        self.expand = nn.Linear(code, 4 * 4 * 16)
        self.decode1 = nn.ConvTranspose2d(16, 8, 3, stride=2, padding=1, output_padding=1)
        self.decode2 = nn.ConvTranspose2d(8, 1, 3, stride=2, padding=1, output_padding=1)

    def encode(self, image):
        x = F.relu(self.encode1(F.pad(image, (0, 1, 0, 1))))
        x = F.relu(self.encode2(F.pad(x, (0, 1, 0, 1))))
        return self.code(torch.flatten(x, 1))

    def decode(self, code):
        x = F.relu(self.expand(code)).view(-1, 4, 4, 16).permute(0, 3, 1, 2)
        return torch.sigmoid(self.decode2(F.relu(self.decode1(x))))

    def forward(self, image):
        return self.decode(self.encode(image))
