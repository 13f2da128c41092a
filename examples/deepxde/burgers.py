"""Burgers' equation with DeepXDE, and the two lines that let MAdam balance its losses.

``python examples/deepxde/burgers.py [iterations] [--plain]``: with ``--plain`` DeepXDE's own Adam on
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
    dy_x = dde.grad.jacobian(y, x, i=0, j=0)
    dy_t = dde.grad.jacobian(y, x, i=0, j=1)
    dy_xx = dde.grad.hessian(y, x, i=0, j=0)
    return dy_t + y * dy_x - 0.05 / torch.pi * dy_xx


geom = dde.geometry.Interval(-1, 1)
timedomain = dde.geometry.TimeDomain(0, 1)
geomtime = dde.geometry.GeometryXTime(geom, timedomain)
bc = dde.icbc.DirichletBC(geomtime, lambda x: 0, lambda _, on_boundary: on_boundary)
ic = dde.icbc.IC(geomtime, lambda x: -np.sin(np.pi * x[:, 0:1]), lambda _, on_initial: on_initial)
data = dde.data.TimePDE(geomtime, pde, [bc, ic], num_domain=800, num_boundary=80, num_initial=80)
net = dde.nn.FNN([2] + [20] * 3 + [1], "tanh", "Glorot normal")
model = dde.Model(data, net)

if plain:
    model.compile("adam", lr=5e-3)
else:
    compile_model(model, MAdam(net.parameters(), lr=5e-3))  # 2
losshistory, train_state = model.train(iterations=iterations, display_every=max(1, iterations // 4))

print("losses", *(f"{loss:.6e}" for loss in losshistory.loss_train[-1]))
