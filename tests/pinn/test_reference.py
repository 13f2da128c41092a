"""References: what is read from a file, and the error against it."""

from pathlib import Path

import pytest
import torch

from madamoo.pinn import Reference, read_comsol

STEADY = """% Model: a.mph
% x y u v
0 0 1 2
1 0 3 NaN
1 1 5 6
"""
IN_TIME = """% Nodes: 2
% X Y u (m/s) @ t=0 v (m/s) @ t=0 u (m/s) @ t=0.5 v (m/s) @ t=0.5
0 1 10 11 12 13
2 3 20 21 22 23
"""


def test_files(tmp_path: Path):
    file = tmp_path / "a.dat"
    file.write_text(STEADY, encoding="utf-8")
    found = read_comsol(file, 2, 2)  # the row with a missing value is left out
    assert found.points.tolist() == [[0, 0], [1, 1]] and found.values.tolist() == [[1, 2], [5, 6]]
    with pytest.raises(ValueError, match=r"must have 3 columns \(2 coordinates and the values\), got 4"):
        read_comsol(file, 2, 1)
    file.write_text(IN_TIME, encoding="utf-8")
    found = read_comsol(file, 3, 2)
    assert found.points.tolist() == [[0, 1, 0], [0, 1, 0.5], [2, 3, 0], [2, 3, 0.5]]
    assert found.values.tolist() == [[10, 11], [12, 13], [20, 21], [22, 23]]


def test_the_error_is_over_the_columns_that_are_known():
    points = torch.rand(7, 2, dtype=torch.float64)
    reference = Reference(points, points[:, :1] + 1)

    def network(x):
        return torch.cat([1.1 * (x[:, :1] + 1), 100 * x], 1)

    for batch in (2, 100):
        assert abs(reference.error(network, batch) - 0.1) < 1e-12
    with pytest.raises(ValueError, match=r"a row per point, got \(7, 2\) and \(6, 1\)"):
        Reference(points, points[:6, :1])
