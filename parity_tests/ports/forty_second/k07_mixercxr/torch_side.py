import torch
from torch import nn


def mlp(n, hidden):
    return nn.Sequential(nn.Linear(n, hidden), nn.GELU(), nn.Linear(hidden, n))


class Mixer(nn.Module):
    def __init__(self, tokens, dim):
        super().__init__()
        self.channel_norm = nn.LayerNorm(dim, eps=1e-6)
        self.channel_mlp = mlp(dim, 64)
        self.token_norm = nn.LayerNorm(dim, eps=1e-6)
        self.token_mlp = mlp(tokens, 16)

    def forward(self, x):
        x = x + self.token_mlp(self.token_norm(x).mT).mT
        return x + self.channel_mlp(self.channel_norm(x))


class ChestMixer(nn.Module):
    def __init__(self, dim=32, patch=8, size=(40, 32), blocks=3):
        super().__init__()
        tokens = (size[0] // patch) * (size[1] // patch)
        self.embed = nn.Conv2d(1, dim, patch, patch)
        self.blocks = nn.ModuleList([Mixer(tokens, dim) for _ in range(blocks)])
        self.heads = nn.ModuleDict(
            {
                "view": nn.Sequential(nn.Linear(dim, 16), nn.ReLU(), nn.Linear(16, 3)),
                "findings": nn.Linear(dim, 5),
            }
        )
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self._tap = None
        self.blocks[0].register_forward_hook(self._keep)

    def _keep(self, module, args, output):
        self._tap = output.detach()

    def forward(self, image):
        x = self.embed(image.movedim(-1, 1) * 4 - 2)
        x = x.permute(0, 3, 2, 1).flatten(1, 2)
        for block in self.blocks:
            x = block(x)
        tap, self._tap = self._tap, None
        return {
            "findings": self.heads["findings"](self.norm(x).mean(1)),
            "view": self.heads["view"](tap.mean(1)),
        }


_pos_weight = torch.tensor([2.0, 1.0, 3.0, 1.5, 4.0])


def findings_loss(logits, target):
    read = target >= 0
    ce = nn.functional.binary_cross_entropy_with_logits(
        logits, target.clamp(min=0), pos_weight=_pos_weight.to(logits), reduction="none"
    )
    return ce[read].mean()


def view_loss(logits, target):
    return nn.functional.cross_entropy(logits, target.long())


def build():
    return ChestMixer()
