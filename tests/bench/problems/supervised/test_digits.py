import torch

from madamoo.bench import get
from madamoo.bench.problems.supervised.digits import draw_pairs, overlay, sources

PROBLEM = get("digits")
PROFILE = PROBLEM.profiles["cpu"]


def test_sizes_labels_and_range():
    data = PROBLEM.load(None, PROFILE, 0)
    assert [len(part) for part in (data.train, data.validation, data.test)] == [4000, 1000, 2000]
    assert data.train.inputs.shape[1:] == (12, 12) and PROBLEM.shape(data) == ((12, 12), (10, 10))
    assert data.train.inputs.min() == 0 and data.train.inputs.max() == 1
    for target in data.train.targets:
        assert target.unique().tolist() == list(range(10))


def test_the_seed_alone_decides():
    one, same, other = (PROBLEM.load(None, PROFILE, seed) for seed in (3, 3, 4))
    for part in ("train", "validation", "test"):
        assert torch.equal(getattr(one, part).inputs, getattr(same, part).inputs)
        assert not torch.equal(getattr(one, part).inputs, getattr(other, part).inputs)


def test_no_source_is_in_two_sets():
    """The top left and bottom right corners show one digit alone: compare them with what the pools can hold."""
    data = PROBLEM.load(None, PROFILE, 0)
    images, _ = sources()
    pools = torch.randperm(len(images), generator=torch.Generator().manual_seed(0)).split([1047, 250, 500])
    for part, pool in zip((data.train, data.validation, data.test), pools, strict=True):
        corners = {tuple(image[:4, :8].flatten().tolist()) for image in images[pool]}
        assert all(tuple(image[:4, :8].flatten().tolist()) in corners for image in part.inputs[:200])


def test_overlay_against_loops():
    first, second = torch.rand(2, 3, 8, 8)
    made = overlay(first, second)
    for n in range(3):
        for row in range(12):
            for column in range(12):
                one = float(first[n, row, column]) if row < 8 and column < 8 else 0.0
                other = float(second[n, row - 4, column - 4]) if row >= 4 and column >= 4 else 0.0
                assert float(made[n, row, column]) == max(one, other)


def test_pairs_come_from_the_pool():
    pool = torch.tensor([3, 5, 8])
    pairs = draw_pairs(pool, 100, torch.Generator().manual_seed(0))
    assert pairs.shape == (2, 100) and set(pairs.flatten().tolist()) == {3, 5, 8}
