"""An unknown diffusion coefficient with DeepXDE, found by MAdam with two changed lines.

``python examples/deepxde/inverse.py [iterations] [--plain]``: u_t = C u_xx + f, where C = 1 is to be found from
values of u = exp(-t) sin(pi x) at ten points.
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
iterations = next((int(word) for word in sys.argv[1:] if word.isdigit()), 3000)
dde.config.set_random_seed(0)
C = dde.Variable(2.0)


def pde(x, y):
    dy_t = dde.grad.jacobian(y, x, i=0, j=1)
    dy_xx = dde.grad.hessian(y, x, i=0, j=0)
    force = torch.exp(-x[:, 1:]) * (1 - torch.pi**2) * torch.sin(torch.pi * x[:, 0:1])
    return dy_t - C * dy_xx + force


def solution(x):
    return np.sin(np.pi * x[:, 0:1]) * np.exp(-x[:, 1:])


geom = dde.geometry.Interval(-1, 1)
timedomain = dde.geometry.TimeDomain(0, 1)
geomtime = dde.geometry.GeometryXTime(geom, timedomain)
bc = dde.icbc.DirichletBC(geomtime, solution, lambda _, on_boundary: on_boundary)
ic = dde.icbc.IC(geomtime, solution, lambda _, on_initial: on_initial)
observe_x = np.vstack((np.linspace(-1, 1, num=10), np.full(10, 0.5))).T
observe_y = dde.icbc.PointSetBC(observe_x, solution(observe_x), component=0)
data = dde.data.TimePDE(
    geomtime,
    pde,
    [bc, ic, observe_y],
    num_domain=100,
    num_boundary=40,
    num_initial=20,
    anchors=observe_x,
    solution=solution,
    num_test=500,
)
net = dde.nn.FNN([2] + [20] * 2 + [1], "tanh", "Glorot uniform")
model = dde.Model(data, net)

if plain:
    model.compile("adam", lr=5e-3, metrics=["l2 relative error"], external_trainable_variables=C)
else:
    opt = MAdam([*net.parameters(), C], lr=5e-3)
    compile_model(model, opt, metrics=["l2 relative error"], external_trainable_variables=C)  # 2
model.train(iterations=iterations, display_every=max(1, iterations // 4))

print(f"C = {C.item():.6f}")
