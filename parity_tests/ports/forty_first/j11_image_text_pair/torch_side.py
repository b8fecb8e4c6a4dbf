import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

ACT = nn.GELU


class SamePad2(nn.ZeroPad2d):
    """Padding of a 3x3 convolution of stride 2 on an even size."""

    def __init__(self):
        super().__init__((0, 1, 0, 1))


class ImageTower(nn.Sequential):
    def __init__(self, dim):
        super().__init__(
            SamePad2(),
            nn.Conv2d(3, 8, 3, 2),
            ACT(),
            SamePad2(),
            nn.Conv2d(8, 12, 3, 2),
            ACT(),
        )
        self.hidden = nn.Linear(4 * 4 * 12, 24)
        self.project = nn.Linear(24, dim, bias=False)

    def forward(self, image):
        floor = 1 / np.sqrt(image[0].numel()).item()
        std, mean = torch.std_mean(image, dim=(1, 2, 3), correction=0, keepdim=True)
        x = ((image - mean) / std.clamp_min(floor)).movedim(-1, 1)
        for m in list(self)[:6]:
            x = m(x)
        x = F.gelu(self.hidden(x.movedim(1, -1).flatten(1)))
        return F.normalize(self.project(x), dim=-1)


class TextTower(nn.Module):
    def __init__(self, vocab, length, dim, width=24):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(torch.randn(length, dim) * 0.2)
        self.mix = nn.Conv1d(dim, width, 3, padding=1)
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, dim, bias=False)

    def forward(self, ids):
        keep = (ids != 0).unsqueeze(1)
        x = (self.tok(ids.long()) + self.pos).transpose(1, 2)
        x = F.gelu(self.mix(x))
        x = x.masked_fill(~keep, 0.0).sum(2) / keep.sum(2).clamp_min(1)
        return F.normalize(self.project(self.norm(x)), dim=-1)


class PairNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.text = TextTower(40, 12, 16)
        self.image = ImageTower(16)
        self.logit_scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, image, text):
        scale = self.logit_scale.clamp(max=4.6).exp()
        return {"image": self.image(image) * scale, "text": self.text(text)}


def build():
    net = PairNet()
    nn.init.normal_(net.text.tok.weight, std=0.5)
    return net


def contrastive(img, txt, group):
    sim = img @ txt.t()
    group = group.reshape(-1)
    same = group.unsqueeze(0).eq(group.unsqueeze(1))
    same.fill_diagonal_(False)
    labels = torch.arange(len(sim), device=sim.device)
    i2t = F.cross_entropy(sim.masked_fill(same, -1e4), labels)
    t2i = F.cross_entropy(sim.t(), labels)
    return (i2t + t2i) / 2


def step(model, batch):
    if isinstance(batch, dict):
        image, text, group = batch["image"], batch["text"], batch["group"]
    else:
        x, group = batch[0], batch[1]
        image, text = (x["image"], x["text"]) if isinstance(x, dict) else x
        group = group["group"] if isinstance(group, dict) else group
    out = model(image, text)
    return contrastive(out["image"], out["text"], group)
