"""The direction is the weighted sum of the rows, block by block, whatever the rows are."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from madamoo.direction import clip_factor, combine
from madamoo.gradients import Block, HeadRows, SharedRows

SHAPES = [(2, 3), (), (0,), (4,)]
COUNT = 4


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    objectives=st.lists(st.integers(0, COUNT - 1), unique=True, max_size=COUNT),
    has_rest=st.booleans(),
    masked=st.booleans(),
    weights=st.lists(st.sampled_from([0.0, 0.3, 1.0, -2.0]), min_size=COUNT, max_size=COUNT),
    seed=st.integers(0, 99),
)
def test_shared_rows(objectives, has_rest, masked, weights, seed):
    if not objectives and not has_rest:
        return
    block = Block(tuple(torch.empty(shape) for shape in SHAPES))
    stack = random(len(objectives) + has_rest, block.entries, seed=seed)
    mask = (random(len(objectives), block.entries, seed=seed + 1) > 0).double() if masked and objectives else None
    x = combine(SharedRows(block, tuple(objectives), stack, has_rest), weights, torch.float64, mask)
    wanted = stack[-1].clone() if has_rest else torch.zeros(block.entries, dtype=torch.float64)
    for k, i in enumerate(objectives):
        wanted += weights[i] * stack[k] * (1.0 if mask is None else mask[k])
    torch.testing.assert_close(x.d, wanted)
    assert x.complete != has_rest and x.block is block and not x.owners
    assert x.objectives == tuple(objectives) and x.weights == tuple(weights) and x.mask is mask
    assert torch.equal(x.rows, stack[: len(objectives)])
    assert [(i, g.tolist()) for i, g in x.by_objective()] == [(i, stack[k].tolist()) for k, i in enumerate(objectives)]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    owners=st.lists(st.integers(0, COUNT - 1), min_size=len(SHAPES), max_size=len(SHAPES)),
    own=st.booleans(),
    has_rest=st.booleans(),
    masked=st.booleans(),
    weights=st.lists(st.sampled_from([0.0, 0.3, 1.0, -2.0]), min_size=COUNT, max_size=COUNT),
)
def test_rows_of_heads(owners, own, has_rest, masked, weights):
    if not own and not has_rest:
        return
    block = Block(tuple(torch.empty(shape) for shape in SHAPES), tuple(owners))
    stack, rest = random(int(own), block.entries), random(block.entries, seed=1) if has_rest else None
    mask = (random(1, block.entries, seed=2) > 0).double() if masked and own else None
    x = combine(HeadRows(block, stack, rest), weights, torch.float64, mask)
    wanted = torch.zeros(block.entries, dtype=torch.float64) if rest is None else rest.clone()
    for (_, part), i in zip(block.parts(), owners, strict=True):
        if own:
            wanted[part] += weights[i] * stack[0, part] * (1.0 if mask is None else mask[0, part])
    torch.testing.assert_close(x.d, wanted)
    assert x.complete != has_rest and x.owners == tuple(owners) and x.objectives == () and torch.equal(x.rows, stack)
    total: dict[int, list[float]] = {}
    for i, piece in x.by_objective():
        total.setdefault(i, []).extend(piece.tolist())
    expected: dict[int, list[float]] = {}
    for (_, part), i in zip(block.parts(), owners, strict=True):
        expected.setdefault(i, []).extend(stack[0, part].tolist() if own else [])
    assert {i: sorted(g) for i, g in total.items() if g} == {i: sorted(g) for i, g in expected.items() if g}


def test_computed_in_the_precision_that_is_asked_for():
    block = Block((torch.empty(3, dtype=torch.bfloat16),))
    rows = SharedRows(block, (0, 1), torch.ones(2, 3, dtype=torch.bfloat16))
    x = combine(rows, [1.0, 1 / 256], torch.float32)
    assert x.d.dtype == x.rows.dtype == torch.float32 and x.d.tolist() == [1 + 1 / 256] * 3


def test_scaled_and_in_part():
    block = Block((torch.empty(5),))
    mask = torch.tensor([[1.0, 0.0, 1.0, 1.0, 0.0], [0.0, 1.0, 1.0, 1.0, 1.0]]).double()
    x = combine(SharedRows(block, (0, 2), random(2, 5)), [1.0, 0.0, 0.5], torch.float64, mask)
    x.memo["products"] = "of all"
    half = x.scaled(0.5)
    assert torch.equal(half.d, 0.5 * x.d) and torch.equal(half.rows, 0.5 * x.rows) and half.memo == {}
    some = x.part(slice(1, 3))
    assert torch.equal(some.d, x.d[1:3]) and torch.equal(some.rows, x.rows[:, 1:3])
    assert torch.equal(some.mask, mask[:, 1:3]) and some.memo == {} and some.weights == x.weights


@pytest.mark.parametrize("size", [1.0, 1e25, 0.0])
def test_clipping_the_norm_over_all_blocks(size):
    """1e25 is finite in float32, and its square is not."""
    xs = [
        combine(SharedRows(Block((torch.empty(1),)), (0,), torch.full((1, 1), c * size)), [1.0], torch.float32)
        for c in (3.0, 4.0)
    ]
    assert clip_factor(xs, None) == clip_factor([], 1.0) == 1.0
    assert clip_factor(xs, 5.001 * size or 1.0) == 1.0
    if size:
        assert clip_factor(xs, size) == pytest.approx(0.2, rel=1e-6)
