import torch
from torch import nn
from torch.optim.lr_scheduler import MultiStepLR

USERS, MOVIES, GENRES = 30, 40, 6


class NeuMF(nn.Module):
    def __init__(self):
        super().__init__()
        self.user_mf, self.movie_mf = nn.Embedding(USERS, 8), nn.Embedding(MOVIES, 8)
        self.user_mlp, self.movie_mlp = nn.Embedding(USERS, 6), nn.Embedding(MOVIES, 6)
        self.user_offset, self.movie_offset = nn.Embedding(USERS, 1), nn.Embedding(MOVIES, 1)
        self.genre_mf = nn.Linear(GENRES, 8, bias=False)
        self.mlp = nn.Sequential(nn.Linear(12 + GENRES, 24), nn.ReLU(), nn.Linear(24, 12), nn.ReLU())
        self.rating = nn.Linear(8 + 12, 1)

    def forward(self, user, movie, genres):
        user, movie = user.long(), movie.long()
        gmf = self.user_mf(user) * (self.movie_mf(movie) + self.genre_mf(genres))
        mlp = self.mlp(torch.cat([self.user_mlp(user), self.movie_mlp(movie), genres], dim=1))
        return self.rating(torch.cat([gmf, mlp], dim=1)) + self.user_offset(user) + self.movie_offset(movie)


class ClippedSGD(torch.optim.SGD):
    def __init__(self, params, max_norm, **kwargs):
        super().__init__(params, **kwargs)
        self.max_norm = max_norm

    def step(self, closure=None):
        for group in self.param_groups:
            nn.utils.clip_grad_norm_(group["params"], self.max_norm)
        return super().step(closure)


def optimizer(params):
    opt = ClippedSGD(params, max_norm=0.5, lr=0.5)
    return opt, MultiStepLR(opt, milestones=[6, 12], gamma=0.25)


def build():
    return NeuMF()
