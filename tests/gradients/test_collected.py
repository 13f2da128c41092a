"""Micro-batches add up, whatever each of them holds."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from madamoo.gradients import Collector, Layout, differentiate, read_losses, sum_present, unpack

SHAPES = [(2, 3), (), (4,), (2,), (0,)]
COUNT = 3
# Which parameters each objective reaches in a micro-batch (none: it is missing), which ones the rest holds, and whether
# the losses come as entries of one tensor.
REACH = st.lists(st.sets(st.integers(0, len(SHAPES) - 1)), min_size=COUNT, max_size=COUNT)
BATCH = st.tuples(REACH, st.booleans(), st.booleans())


def batch_of(params, slopes, reach, opaque):
    """Linear losses, so that the gradients are the slopes."""
    losses = [sum((params[p] * slopes[i][p]).sum() for p in reach[i]) if reach[i] else None for i in range(COUNT)]
    if opaque:
        there = [loss for loss in losses if loss is not None]
        entries = iter((torch.stack(there) * 1.0).unbind())
        losses = [None if loss is None else next(entries) for loss in losses]
    return read_losses(losses)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    batches=st.lists(BATCH.filter(lambda b: any(b[0])), min_size=1, max_size=4),
    heads_together=st.booleans(),
    seed=st.integers(0, 99),
)
def test_micro_batches_add_up(batches, heads_together, seed):
    generator = torch.Generator().manual_seed(seed)
    params = [torch.zeros(shape, dtype=torch.float64).requires_grad_() for shape in SHAPES]
    collector = Collector(params, lambda _: 0, heads_together=heads_together)
    collected, wanted, rest = None, {}, {}
    values = [math.nan] * COUNT
    for reach, summed, opaque in batches:
        slopes = [[torch.randn(p.shape, generator=generator, dtype=torch.float64) for p in params] for _ in reach]
        batch = batch_of(params, slopes, reach, opaque)
        weighted = {batch.present[-1]: 2.0} if summed else {}
        collected = collector.open(collected, batch, Layout())
        found = differentiate(batch, params, [i for i in batch.present if i not in weighted], weighted)
        before = collected.rows, [r.stack.clone() for r in collected.rows]
        missing = len(collected.present) < COUNT
        collected = collector.add(collected, found, opaque=opaque, missing=missing)
        assert all(torch.equal(r.stack, stack) for r, stack in zip(*before, strict=True))  # never in place
        for i in batch.present:
            values[i] = 0.0 + (0.0 if math.isnan(values[i]) else values[i])
            for p in reach[i]:
                into, c = (rest, 2.0) if i in weighted else (wanted.setdefault(i, {}), 1.0)
                into[p] = into.get(p, 0.0) + c * slopes[i][p]
    assert collected.finite and collected.present == tuple(i for i in range(COUNT) if not math.isnan(values[i]))
    got = unpack(collected.rows, params)

    def check(row, slopes):
        for p, g in enumerate(row or [None] * len(params)):
            if p in slopes and params[p].numel():
                torch.testing.assert_close(g, slopes[p])
            else:
                assert g is None or not g.any()  # zero behind an opaque graph

    for i in range(COUNT):
        check(got.rows.get(i), wanted.get(i, {}))
    check(got.rest, rest)


def test_alike_batches_keep_their_blocks():
    """Head rows with and without a rest, and shared ones: summed as they are."""
    trunk, head = torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)
    collector, collected = Collector([trunk, head], lambda _: 0), None
    for k in range(3):
        extra = head.sum() if k else None
        batch = read_losses([trunk.sum() + head.sum(), 2 * trunk.sum()], extra=extra)
        collected = collector.open(collected, batch, Layout() if collected is None else collected.layout)
        blocks = collected.layout.blocks
        collected = collector.add(collected, differentiate(batch, [trunk, head], (0, 1)), opaque=False, missing=False)
        assert k == 0 or {*blocks} == {*collected.layout.blocks}
    shared, heads = collected.rows
    assert shared.stack.tolist() == [[3.0] * 2, [6.0] * 2] and heads.stack.tolist() == [[3.0] * 3]
    assert heads.rest.tolist() == [2.0] * 3


def test_losses_that_are_not_finite():
    x = torch.ones((), requires_grad=True)
    collector = Collector([x], lambda _: 0)
    assert collector.open(None, read_losses([x * 1.0, None]), Layout()).finite
    for bad in (math.inf, math.nan):
        first = collector.open(None, read_losses([x * 1.0, None]), Layout())
        assert not collector.open(first, read_losses([None, x * bad]), Layout()).finite
        assert not collector.open(None, read_losses([x * 1.0, x * bad]), Layout()).finite


def test_losses_add_up_over_those_that_are_there():
    a, b = torch.tensor([1.0, math.nan, math.nan, 4.0]), torch.tensor([10.0, 20.0, math.nan, math.nan])
    assert sum_present(a, b)[[0, 1, 3]].tolist() == [11.0, 20.0, 4.0] and math.isnan(sum_present(a, b)[2])
