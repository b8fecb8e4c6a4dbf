import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self, cards=(5, 7, 3, 11), dim=4, n_num=6):
        super().__init__()
        starts = torch.tensor((0,) + cards[:-1]).cumsum(0)
        self.register_buffer("starts", starts)
        self.codes = nn.Embedding(sum(cards), dim)
        width = dim * len(cards) + 2 * n_num
        self.glu_cat = nn.Linear(dim * len(cards), 64, bias=False)
        self.glu_num = nn.Linear(2 * n_num, 64)
        self.deep = nn.Linear(32, 24)
        self.cross_w = nn.Parameter(0.1 * torch.randn(2, width, width))
        self.cross_b = nn.Parameter(torch.zeros(2, width))
        self.out_deep = nn.Linear(24, 1)
        self.out_cross = nn.Linear(width, 1, bias=False)

    def forward(self, cat, num):
        codes = self.codes(cat + self.starts).flatten(1)
        absent = num == -999.0
        nums = torch.cat([num.masked_fill(absent, 0.0), absent.to(num.dtype)], dim=1)

        deep = F.glu(self.glu_cat(codes) + self.glu_num(nums), dim=1)
        deep = F.elu(self.deep(deep))

        x0 = x = torch.cat([codes, nums], dim=1)
        for w, b in zip(self.cross_w, self.cross_b):
            x = torch.addcmul(x, x0, torch.einsum("bi,oi->bo", x, w) + b)
        return self.out_deep(deep) + self.out_cross(x)
