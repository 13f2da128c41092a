"""A small problem with everything that rows can be: a shared parameter, one head per objective, and one unused."""

import pytest
import torch


@pytest.fixture
def problem():
    """Parameters [trunk, head 0, head 1, head 2, unused], and a function that computes the three losses."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(4, 3), (3,), (3,), (3,), (2,)]
    params = [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]
    x = torch.randn(5, 4, generator=generator, dtype=torch.float64)

    def losses():
        hidden = torch.tanh(x @ params[0])
        return [(hidden @ head).square().mean() * (i + 1) for i, head in enumerate(params[1:4])]

    return params, losses


@pytest.fixture
def forms():
    """The forms in which losses may come, each made from a list of scalars."""
    return {
        "sequence": list,
        "tuple": tuple,
        "dict": lambda losses: {f"task {i}": loss for i, loss in enumerate(losses)},
        "shape [1]": lambda losses: [loss.reshape(1) for loss in losses],
        "stack": torch.stack,
        "dense": lambda losses: torch.stack(losses) * 1.0,
        "cat": lambda losses: torch.cat([loss.reshape(1) for loss in losses]),
        "picked": lambda losses: list((torch.stack(losses) * 1.0).unbind()),
    }


OPAQUE = ("dense", "cat", "picked")


@pytest.fixture
def opaque():
    """The names of the forms that hide which objective reaches which parameter."""
    return OPAQUE
