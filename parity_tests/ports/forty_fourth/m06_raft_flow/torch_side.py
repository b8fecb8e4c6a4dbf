"""RAFT, small."""

import torch
import torch.nn.functional as F
from torch import nn


def make_encoder(out, groups):
    return nn.Sequential(
        nn.ZeroPad2d((1, 2, 1, 2)),
        nn.Conv2d(1, 16, 5, 2),
        nn.GroupNorm(groups or 16, 16),
        nn.ReLU(),
        nn.ZeroPad2d((0, 1, 0, 1)),
        nn.Conv2d(16, 24, 3, 2),
        nn.GroupNorm(groups or 24, 24),
        nn.ReLU(),
        nn.Conv2d(24, out, 1),
    )


class CorrBlock:
    def __init__(self, fmap1, fmap2, levels=2, radius=2):
        b, d, h, w = fmap1.shape
        volume = torch.einsum("bdij,bdkl->bijkl", fmap1, fmap2) / d**0.5
        volume = volume.reshape(b * h * w, 1, h, w)
        self.levels = [volume]
        for _ in range(levels - 1):
            self.levels.append(F.avg_pool2d(self.levels[-1], 2))
        span = torch.arange(-radius, radius + 1, dtype=fmap1.dtype, device=fmap1.device)
        self.window = torch.stack(torch.meshgrid(span, span, indexing="xy"), dim=-1)

    def __call__(self, coords):
        b, _, h, w = coords.shape
        centre = coords.permute(0, 2, 3, 1).reshape(b * h * w, 1, 1, 2)
        out = []
        for i, volume in enumerate(self.levels):
            size = volume.new_tensor([volume.shape[-1], volume.shape[-2]])
            grid = 2 * (centre / 2**i + self.window) / (size - 1) - 1
            out.append(F.grid_sample(volume, grid, align_corners=True).view(b, h, w, -1))
        return torch.cat(out, dim=-1).permute(0, 3, 1, 2)


class MotionEncoder(nn.Module):
    def __init__(self, corr_planes):
        super().__init__()
        self.flow = nn.Conv2d(2, 16, 3, padding=1)
        self.corr = nn.Conv2d(corr_planes, 32, 1)
        self.fuse = nn.Conv2d(48, 24, 3, padding=1)

    def forward(self, flow, corr):
        joined = torch.cat([F.relu(self.corr(corr)), F.relu(self.flow(flow))], dim=1)
        return torch.cat([F.relu(self.fuse(joined)), flow], dim=1)


class ConvGRU(nn.Module):
    def __init__(self, hidden, inputs):
        super().__init__()
        self.convz = nn.Conv2d(hidden + inputs, hidden, 3, padding=1)
        self.convr = nn.Conv2d(hidden + inputs, hidden, 3, padding=1)
        self.convq = nn.Conv2d(hidden + inputs, hidden, 3, padding=1)

    def forward(self, h, x):
        hx = torch.cat([h, x], dim=1)
        z, r = torch.sigmoid(self.convz(hx)), torch.sigmoid(self.convr(hx))
        q = torch.tanh(self.convq(torch.cat([r * h, x], dim=1)))
        return torch.lerp(h, q, z)


class RAFT(nn.Module):
    def __init__(self, iterations=3, scale=4, hidden=16, context=16):
        super().__init__()
        self.iterations, self.scale, self.sizes = iterations, scale, (hidden, context)
        self.cnet = make_encoder(hidden + context, groups=4)
        self.fnet = make_encoder(24, groups=None)
        self.encoder = MotionEncoder(2 * 25)
        self.gru = ConvGRU(hidden, context + 26)
        self.flow_head = nn.Sequential(
            nn.Conv2d(hidden, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 2, 3, padding=1)
        )
        self.mask_head = nn.Sequential(
            nn.Conv2d(hidden, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 9 * scale**2, 1)
        )

    def upsample(self, flow, mask):
        b, _, h, w = flow.shape
        s = self.scale
        mask = mask.view(b, 1, 9, s, s, h, w).softmax(dim=2)
        near = F.unfold(s * flow, 3, padding=1).view(b, 2, 9, 1, 1, h, w)
        fine = (mask * near).sum(2)
        return fine.permute(0, 4, 2, 5, 3, 1).reshape(b, h * s, w * s, 2)

    def forward(self, frame1, frame2):
        one, two = (2 * (f if f.shape[1] == 1 else f.movedim(-1, 1)) - 1 for f in (frame1, frame2))
        fmap1, fmap2 = self.fnet(torch.cat([one, two])).chunk(2)
        corr_block = CorrBlock(fmap1, fmap2)
        net, inp = self.cnet(one).split(self.sizes, dim=1)
        net, inp = net.tanh(), inp.relu()

        b, _, h, w = fmap1.shape
        ys, xs = torch.meshgrid(
            torch.arange(h, dtype=one.dtype, device=one.device),
            torch.arange(w, dtype=one.dtype, device=one.device),
            indexing="ij",
        )
        coords0 = torch.stack([xs, ys]).expand(b, -1, -1, -1)
        coords1 = coords0
        flows = []
        for _ in range(self.iterations):
            corr = corr_block(coords1.detach())
            flow = coords1 - coords0
            net = self.gru(net, torch.cat([inp, self.encoder(flow, corr)], dim=1))
            coords1 = coords1 + self.flow_head(net)
            flows.append(self.upsample(coords1 - coords0, 0.25 * self.mask_head(net)))
        return torch.stack(flows, dim=1)


def build():
    return RAFT()


def sequence_loss(outputs, targets, gamma=0.8):
    flow, known = targets[..., :2], targets[..., 2]
    n = outputs.shape[1]
    loss = 0.0
    for i, prediction in enumerate(outputs.unbind(1)):
        distance = (prediction - flow).abs().sum(-1)
        loss = loss + gamma ** (n - i - 1) * (known * distance).mean()
    return loss
