import torch
from torch import Tensor, nn


def squash(s: Tensor, dim: int = -1) -> Tensor:
    n2 = torch.linalg.vecdot(s, s, dim=dim).unsqueeze(dim)
    return s * (n2 * (n2 + 1e-7).rsqrt() / (1 + n2))


class Routing(nn.Module):
    """Votes are kept as (batch, upper, lower, dim)."""

    def __init__(self, lower: int, upper: int, d_lower: int, d_upper: int, rounds: int = 3):
        super().__init__()
        self.rounds = rounds
        self.votes = nn.Parameter(torch.randn(upper, lower, d_upper, d_lower) * 0.2)
        self.bias = nn.Parameter(torch.full((upper, d_upper), 0.05))

    @torch.no_grad()
    def agree(self, votes: Tensor) -> Tensor:
        b = votes.new_zeros(votes.shape[:3])
        for _ in range(self.rounds - 1):
            out = squash(self.gather(votes, b))
            b = b + (votes @ out.unsqueeze(-1)).squeeze(-1)
        return b

    def gather(self, votes: Tensor, b: Tensor) -> Tensor:
        return (b.softmax(dim=1).unsqueeze(2) @ votes).squeeze(2) + self.bias

    def forward(self, u: Tensor) -> Tensor:
        votes = torch.matmul(self.votes, u[:, None, :, :, None]).squeeze(-1)
        return squash(self.gather(votes, self.agree(votes)))


class CapsNet(nn.Module):
    def __init__(self, classes: int = 7, caps: int = 6, d: int = 4, size: int = 14):
        super().__init__()
        side = (size - 4 - 4) // 2 + 1
        self.d = d
        self.features = nn.Sequential(nn.Conv2d(1, 16, 5), nn.ReLU(), nn.Conv2d(16, caps * d, 4, stride=2))
        self.routing = Routing(side * side * caps, classes, d, 8)
        self.decoder = nn.Sequential(
            nn.Linear(classes * 8, 48),
            nn.ReLU(),
            nn.Linear(48, 64),
            nn.ReLU(),
            nn.Linear(64, size * size),
            nn.Sigmoid(),
        )

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        f = self.features(image.permute(0, 3, 1, 2))
        u = squash(f.permute(0, 2, 3, 1).reshape(len(f), -1, self.d))
        v = self.routing(u)
        length = (v.square().sum(-1) + 1e-7).sqrt()
        winner = length.argmax(1)
        kept = torch.zeros_like(v)
        rows = torch.arange(len(v), device=v.device)
        kept = kept.index_put((rows, winner), v[rows, winner])
        return {"recon": self.decoder(kept.flatten(1)), "digit": length}


def margin(length: Tensor, y: Tensor) -> Tensor:
    y = y.reshape(-1, 1).long()
    wrong = 0.5 * (length - 0.1).clamp(min=0) ** 2
    right = (0.9 - length.gather(1, y)).clamp(min=0) ** 2
    return (wrong.scatter(1, y, right)).sum(1).mean()


def reconstruction(out: Tensor, x: Tensor) -> Tensor:
    return nn.functional.mse_loss(out, x.to(out.dtype), reduction="sum") / out.shape[0]


def build() -> CapsNet:
    return CapsNet()
