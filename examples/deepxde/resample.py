"""Diffusion with DeepXDE on points that are drawn again every 100 iterations, balanced by CAGrad under MAdam.

``python examples/deepxde/resample.py [iterations] [--plain]``: with ``--plain`` DeepXDE's own Adam on
the sum of the losses.
"""

import os
import sys

os.environ.setdefault("DDE_BACKEND", "pytorch")
import deepxde as dde
import numpy as np
import torch

from madamoo import MAdam
from madamoo.integrations.deepxde import compile_model  # 1

plain = "--plain" in sys.argv
iterations = next((int(word) for word in sys.argv[1:] if word.isdigit()), 2000)
dde.config.set_random_seed(0)


def pde(x, y):
    dy_t = dde.grad.jacobian(y, x, j=1)
    dy_xx = dde.grad.hessian(y, x, j=0)
    force = torch.exp(-x[:, 1:]) * (1 - torch.pi**2) * torch.sin(torch.pi * x[:, 0:1])
    return dy_t - dy_xx + force


def solution(x):
    return np.sin(np.pi * x[:, 0:1]) * np.exp(-x[:, 1:])


geom = dde.geometry.Interval(-1, 1)
timedomain = dde.geometry.TimeDomain(0, 1)
geomtime = dde.geometry.GeometryXTime(geom, timedomain)
bc = dde.icbc.DirichletBC(geomtime, solution, lambda _, on_boundary: on_boundary)
ic = dde.icbc.IC(geomtime, solution, lambda _, on_initial: on_initial)
data = dde.data.TimePDE(
    geomtime,
    pde,
    [bc, ic],
    num_domain=40,
    num_boundary=20,
    num_initial=10,
    train_distribution="pseudo",
    solution=solution,
    num_test=1000,
)
net = dde.nn.FNN([2] + [20] * 2 + [1], "tanh", "Glorot uniform")
model = dde.Model(data, net)
resampler = dde.callbacks.PDEPointResampler(period=min(100, max(1, iterations // 4)))

if plain:
    model.compile("adam", lr=5e-3, metrics=["l2 relative error"])
else:
    compile_model(model, MAdam(net.parameters(), lr=5e-3, solver="cagrad"), metrics=["l2 relative error"])  # 2
losshistory, train_state = model.train(
    iterations=iterations, display_every=max(1, iterations // 4), callbacks=[resampler]
)

print(f"relative error {losshistory.metrics_test[-1][0]:.6e}")
