import torch
from torch import nn
from torch.nn import functional as F


class Dice(nn.Module):
    def __init__(self, width, momentum=0.9, eps=1e-8):
        super().__init__()
        self.alpha = nn.Parameter(torch.full((width,), 0.25))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))
        self.momentum, self.eps = momentum, eps

    def forward(self, x):
        if self.training:
            var, mean = torch.var_mean(x.flatten(0, -2), 0, correction=0)
            with torch.no_grad():
                self.running_mean.mul_(1 - self.momentum).add_(mean, alpha=self.momentum)
                self.running_var.mul_(1 - self.momentum).add_(var, alpha=self.momentum)
        else:
            mean, var = self.running_mean, self.running_var
        gate = torch.sigmoid((x - mean) * torch.rsqrt(var + self.eps))
        return x * torch.lerp(self.alpha.expand_as(x), torch.ones_like(x), gate)


class DIN(nn.Module):
    def __init__(self, items=60, cates=12, dim=8, weight_decay=1 / 1024):
        super().__init__()
        self.item_table = nn.Embedding(items, dim, padding_idx=0)
        self.cate_table = nn.Embedding(cates, dim, padding_idx=0)
        self.attention = nn.Sequential(nn.Linear(8 * dim, 24), Dice(24), nn.Linear(24, 1))
        layers, inputs = [], 6 * dim
        for width in (32, 16):
            layers += [nn.Linear(inputs, width), Dice(width), nn.Dropout(0.2)]
            inputs = width
        self.tower = nn.Sequential(*layers, nn.Linear(inputs, 1))
        self.weight_decay = weight_decay

    def embed(self, item, cate):
        return torch.cat([self.item_table(item.long()), self.cate_table(cate.long())], -1)

    def forward(self, hist_item, hist_cate, item, cate):
        keys = self.embed(hist_item, hist_cate)
        query = self.embed(item, cate)
        q = query.unsqueeze(1).expand_as(keys)
        score = self.attention(torch.cat([keys, q, keys - q, keys * q], -1)).squeeze(-1)
        score = score.masked_fill(hist_item == 0, 0.0)
        interest = torch.einsum("bt,btd->bd", score, keys)
        return self.tower(torch.cat([interest, query, interest * query], -1))

    def training_step(self, batch):
        logit = self(batch["hist_item"], batch["hist_cate"], batch["item"], batch["cate"])
        loss = F.binary_cross_entropy_with_logits(logit.squeeze(-1), batch["y"].to(logit.dtype))
        tables = (self.item_table.weight, self.cate_table.weight)
        return loss + self.weight_decay * sum(table.square().sum() for table in tables)


def step(model, batch):
    x, y = batch
    return model.training_step({**x, "y": y.flatten()})
