"""Networks to condition, and the ways to do it: what the tests of several of them share."""

import torch
from torch import nn

from madamoo.pareto._cosmos import COSMOS
from madamoo.pareto._hypernetwork import PHN
from madamoo.pareto._palora import PaLoRA
from madamoo.pareto._pamal import PaMaL

A = [0.3, 0.7]


def small_phn(model, n_objectives=2):
    return PHN(model, n_objectives, hidden=8)


METHODS = {"pamal": PaMaL, "palora": PaLoRA, "cosmos": COSMOS, "phn": small_phn}


def mlp(outputs=2):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, outputs)).double()


class Images(nn.Module):
    """Convolutions, normalisation with running statistics, dropout, a head for each objective."""

    def __init__(self, objectives=2):
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 2), nn.Flatten()
        )
        self.heads = nn.ModuleList(nn.Linear(27, 1) for _ in range(objectives))

    def forward(self, x):
        z = self.trunk(x)
        return torch.cat([head(z) for head in self.heads], dim=1)


NETWORKS = {"mlp": mlp, "images": lambda: Images().double()}


def batch(name, seed=1):
    torch.manual_seed(seed)
    return torch.randn(6, *{"mlp": (3,), "images": (2, 4, 4)}[name], dtype=torch.float64)


def stir(model):
    """Give every parameter a value of its own: PaLoRA's B starts at zero, and norms all alike."""
    torch.manual_seed(5)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p), alpha=0.2)
    return model


def make(method, network, objectives=2):
    return stir(METHODS[method](NETWORKS[network](), objectives))


class Root(nn.Module):
    """A parameter that belongs to no layer."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(self.scale * x)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.out = nn.Embedding(7, 3), nn.Linear(3, 7)
        self.out.weight = self.embedding.weight

    def forward(self, x):
        return self.out(self.embedding(x))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend, self.out = nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        return self.out(self.attend(x, x, x)[0])


def normed():
    return nn.Sequential(nn.Linear(3, 3), nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)))


# fmt: off
LAYERS = {
    "linear": (lambda: nn.Linear(4, 3), (6, 4)),
    "linear-no-bias": (lambda: nn.Linear(4, 3, bias=False), (6, 4)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, padding=1, groups=2), (2, 4, 5)),
    "conv2d": (lambda: nn.Conv2d(2, 3, 3, stride=2), (2, 2, 5, 5)),
    "conv3d": (lambda: nn.Conv3d(1, 2, 2, bias=False), (2, 1, 3, 3, 3)),
    "transposed1d": (lambda: nn.ConvTranspose1d(4, 2, 3), (2, 4, 5)),
    "transposed2d": (lambda: nn.ConvTranspose2d(4, 6, 3, groups=2, output_padding=1, stride=2), (2, 4, 3, 3)),
    "transposed3d": (lambda: nn.ConvTranspose3d(1, 2, 2), (2, 1, 3, 3, 3)),
    "batchnorm1d": (lambda: nn.BatchNorm1d(4), (6, 4)),
    "batchnorm2d": (lambda: nn.BatchNorm2d(3), (4, 3, 2, 2)),
    "batchnorm3d": (lambda: nn.BatchNorm3d(3, track_running_stats=False), (4, 3, 2, 2, 2)),
    "layernorm": (lambda: nn.LayerNorm((3, 4)), (6, 3, 4)),
    "groupnorm": (lambda: nn.GroupNorm(2, 4), (6, 4, 3)),
    "instancenorm1d": (lambda: nn.InstanceNorm1d(4, affine=True), (6, 4, 3)),
    "instancenorm2d": (lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True), (6, 4, 3, 3)),
    "instancenorm3d": (lambda: nn.InstanceNorm3d(2, affine=True), (2, 2, 3, 3, 3)),
    "rmsnorm": (lambda: nn.RMSNorm(4), (6, 4)),
    "embedding": (lambda: nn.Embedding(7, 3, padding_idx=1), None),
    "embeddingbag": (lambda: nn.EmbeddingBag(7, 3), None),
}
# fmt: on
C = 3
RAY = [0.2, 0.5, 0.3]


def one_layer(name, method, *args, **options):
    """A network of one layer, conditioned for three objectives, and an input."""
    layer, shape = LAYERS[name]
    torch.manual_seed(0)
    model = method(nn.ModuleList([layer()]).double(), C, *args, **options)
    x = torch.randint(7, (4, 5)) if shape is None else torch.randn(shape, dtype=torch.float64)
    return stir(model), x


def call(model, x, preference):
    with model.at(preference):
        return model.module[0](x)
