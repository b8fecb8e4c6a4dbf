import torch
import torch.nn.functional as F
from torch import nn

BETA = 0.25


class Net(nn.Module):
    def __init__(self, codes=12, dim=8):
        super().__init__()
        self.encode = nn.Sequential(
            nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(1, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, dim, 1)
        )
        self.codes = nn.Embedding(codes, dim)
        self.decode = nn.Sequential(
            nn.Conv2d(dim, 16, 3, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 12, 3, stride=2, padding=1, output_padding=1),
            nn.ReLU(),
            nn.Conv2d(12, 1, 3, padding=1),
        )

    def quantise(self, z):
        cells = z.permute(0, 2, 3, 1)
        index = torch.cdist(cells.flatten(0, 2), self.codes.weight).argmin(dim=1)
        picked = self.codes(index).view_as(cells).permute(0, 3, 1, 2)
        vq = F.mse_loss(z, picked.detach()) + BETA * F.mse_loss(picked, z.detach())
        return z + (picked - z).detach(), vq

    def run(self, tile):
        codes, vq = self.quantise(self.encode(tile.permute(0, 3, 1, 2)))
        return self.decode(codes).permute(0, 2, 3, 1), vq

    def forward(self, tile):
        return self.run(tile)[0]


def step(model, batch):
    out, vq = model.run(batch[0])
    return F.mse_loss(out, batch[1]) + vq
