"""Regions of lower precision, and the scale that goes with them."""

import torch

from madamoo.gradients import full_precision, read_scale

CPU = torch.device("cpu")


def test_products_of_gradients_are_not_for_autocast():
    a = torch.randn(8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (a @ a).dtype == torch.bfloat16
        with full_precision(CPU):
            assert (a @ a).dtype == torch.float32
    with full_precision(torch.device("meta")):
        pass


def test_the_scale():
    assert read_scale(None, CPU) == 1.0
    assert read_scale(torch.amp.GradScaler("cpu", enabled=False), CPU) == 1.0
    assert read_scale(torch.amp.GradScaler("cpu", init_scale=512.0), CPU) == 512.0
