"""A problem on the CPU is the same where tensors are made elsewhere unless told; "meta" has no values."""

import pytest
import torch

from madamoo import pinn


def heat(f):
    return f.u_t - f.u_xx


def losses(device, network, sampler):
    with torch.device(device):
        problem = pinn.Problem(
            pinn.Interval(-1, 1) * pinn.TimeDomain(0, 1),
            heat,
            {
                "initial": pinn.IC(lambda x: torch.sin(x[:, :1])),
                "ends": pinn.DirichletBC(0.0),
                "measured": pinn.PointSetBC([[0.0, 0.5]], 1.0),
            },
            num_domain=20,
            num_boundary=6,
            num_initial=6,
            sampler=sampler,
        )
        problem.sample(torch.Generator().manual_seed(1))
        return torch.stack([*problem.losses(network).values()]).detach()


@pytest.mark.parametrize("sampler", ["pseudo", "uniform", "lhs", "sobol", "halton", "hammersley"])
def test_the_default_device_does_not_matter(sampler):
    network = pinn.FNN([2, 8, 1])
    assert torch.equal(losses("cpu", network, sampler), losses("meta", network, sampler))


def test_geometries_too():
    x = torch.tensor([[0.5, 0.5], [3.0, 3.0]], dtype=torch.float64)
    with torch.device("meta"):
        shapes = [
            pinn.Disk((0, 0), 1.0),
            pinn.Polygon([(0, 0), (1, 0), (1, 1), (0, 1.0)]),
            pinn.Rectangle((0, 0), (1, 1)) - pinn.Disk((1, 1), 0.1),
        ]
        assert [shape.inside(x).tolist() for shape in shapes] == [[True, False]] * 3
        drawn = torch.Generator().manual_seed(0)
        assert all(shape.random_points(9, generator=drawn).device.type == "cpu" for shape in shapes)
