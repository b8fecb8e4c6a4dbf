import torch
import torch.nn as nn

CARDINALITIES = (50, 40, 20, 25, 5)


class MultiHotEmbedding(nn.Module):
    """Sum of the tags over the root of their number; tag 0 fills up."""

    def __init__(self, n, dim):
        super().__init__()
        self.bag = nn.EmbeddingBag(n, dim, mode="sum", padding_idx=0)

    def forward(self, tags):
        n = (tags != 0).sum(1, keepdim=True).clamp(min=1)
        return self.bag(tags) / n.to(self.bag.weight.dtype).sqrt()


class FeatureTable(nn.Module):
    def __init__(self, dim, n_tags=30):
        super().__init__()
        self.ids = nn.ModuleList(nn.Embedding(n, dim) for n in CARDINALITIES)
        self.tags = MultiHotEmbedding(n_tags, dim)
        self.price = nn.Parameter(torch.randn(dim) * 0.3)

    def forward(self, fields, tags, price):
        rows = [table(column) for table, column in zip(self.ids, fields.unbind(1))]
        return torch.stack(rows + [self.tags(tags), price.log1p() * self.price], 1)


class NeuralFFM(nn.Module):
    def __init__(self, latent=6):
        super().__init__()
        self.n_fields = n = len(CARDINALITIES) + 2
        self.latent = latent
        self.mlp = nn.Sequential(
            nn.Linear(latent, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1, bias=False)
        )
        self.first_order = FeatureTable(1)
        self.second_order = FeatureTable(n * latent)
        rows, columns = torch.triu_indices(n, n)
        self.register_buffer("rows", rows, persistent=False)
        self.register_buffer("columns", columns, persistent=False)
        for module in self.modules():
            if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
                nn.init.normal_(module.weight, std=0.3)

    def forward(self, fields, tags, price):
        fields, tags = fields.long(), tags.long()
        v = self.second_order(fields, tags, price).unflatten(-1, (self.n_fields, self.latent))
        pooled = (v[:, self.rows, self.columns] * v[:, self.columns, self.rows]).sum(1)
        linear = self.first_order(fields, tags, price).sum(1)
        return linear + pooled.sum(1, keepdim=True) + self.mlp(pooled)


def optimizer(parameters):
    sgd = torch.optim.SGD(parameters, lr=0.25)
    return sgd, torch.optim.lr_scheduler.StepLR(sgd, step_size=10, gamma=0.75)


def build():
    return NeuralFFM()
