"""Three objectives on three tensors, some of which some objectives do not reach; gradients in plain Python too."""

import math

import torch

# Three objectives of very different size; each is a quadratic with a target that moves, on the tensors it reaches.
# The first objective, the anchor, does not reach every tensor.
SIZES = (1.0, 300.0, 2e-3)
REACH = {"shared": (0, 1, 2), "partly": (1, 2), "head": (2,)}
START = {"shared": [0.5, -1.0, 2.0, 0.1], "partly": [1.0, -0.3], "head": [0.7, 0.2, -1.5]}
SHAPES = {"shared": (2, 2), "partly": (2,), "head": (3,)}


def curvature(i, j):
    return 0.3 + ((3 * i + 2 * j) % 5) / 2


def target(i, j, t):
    return math.sin(1.7 * i + 0.9 * j) + 0.4 * math.cos(0.31 * t * (i + 1) + j)


def gradient(i, x, t):
    return [SIZES[i] * curvature(i, j) * (x[j] - target(i, j, t)) for j in range(len(x))]


def torch_loss(i, params, t):
    total = 0.0
    for name, x in params.items():
        if i in REACH[name]:
            a = torch.tensor([curvature(i, j) for j in range(x.numel())], dtype=x.dtype)
            c = torch.tensor([target(i, j, t) for j in range(x.numel())], dtype=x.dtype)
            total = total + 0.5 * SIZES[i] * (a * (x.flatten() - c).square()).sum()
    return total


def train(optimizer, steps, present, **options):
    params = {n: torch.tensor(x, dtype=torch.float64).view(SHAPES[n]).requires_grad_() for n, x in START.items()}
    opt = optimizer(params.values(), lr=0.01, **options)
    for t in range(steps):
        opt.zero_grad()
        opt.backward([torch_loss(i, params, t) if i in present(t) else None for i in range(3)])
        opt.step()
    return params


def distance(params, theta):
    return max(
        (x.detach().flatten() - torch.tensor(theta[n], dtype=x.dtype)).abs().max().item() for n, x in params.items()
    )


def always(t):
    return (0, 1, 2)
