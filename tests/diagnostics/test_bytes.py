"""The size of a state."""

import torch

from madamoo import MAdam, solvers
from madamoo.diagnostics import state_bytes


def test_every_tensor_counts_once_however_often_it_is_there():
    one, other = torch.zeros(3, dtype=torch.float64), torch.zeros(2, 2, dtype=torch.bfloat16)
    assert state_bytes({"a": [one, (other, "text")], "b": {"again": one, "none": None}}) == 3 * 8 + 4 * 2
    assert state_bytes([one.clone(), one]) == 2 * 3 * 8


def test_a_checkpoint_of_madam_has_one_average_beside_adams_two():
    net = torch.nn.Linear(300, 50)
    opt = MAdam(net.parameters(), solver=solvers.LS())
    y = net(torch.randn(4, 300))
    opt.backward([y.square().mean(), y.abs().mean()])
    opt.step()
    size = sum(4 * p.numel() for p in net.parameters())
    assert 3 * size < state_bytes(opt.state_dict()) < 3.2 * size
