"""Averages that are kept in blocks stay the averages of their parameters, however the blocks change."""

import pytest
import torch

from madamoo.metric._pairwise import Pairwise
from madamoo.metric._store import Store

PARAMS = tuple(torch.empty(shape) for shape in [(2, 2), (3,), (), (1, 5)])


def make(params, pairs=((0, 0), (0, 1)), n=3, scale=0.5):
    total = sum(p.numel() for p in params)
    F = torch.arange(len(pairs) * total, dtype=torch.float32).view(len(pairs), total)
    return Pairwise(tuple(params), None, [*pairs], [n] * len(pairs), [scale] * len(pairs), F)


def parts(store):
    return {a.params[0]: a.F.clone() for block in store for a in block.split()}


def test_a_block_is_found_as_it_is():
    block = make(PARAMS)
    store = Store(Pairwise, [block])
    assert store.find(PARAMS) is block and store.take(PARAMS) is block and list(store) == [block]
    assert all(p in store for p in PARAMS) and torch.empty(1) not in store
    assert torch.equal(store[PARAMS[1]].F, block.F[:, 4:7])


def test_reading_a_part_changes_nothing():
    store = Store(Pairwise, [make(PARAMS)])
    found = store.find(PARAMS[1:3])
    assert torch.equal(found.F, store.find(PARAMS).F[:, 4:8])
    assert len(list(store)) == 1


@pytest.mark.parametrize("chosen", [(0,), (1, 3), (0, 1, 2), (3, 0)])
def test_taking_a_part_divides_the_block(chosen):
    store = Store(Pairwise, [make(PARAMS)])
    before = parts(store)
    taken = store.take(tuple(PARAMS[i] for i in chosen))
    rest = tuple(p for i, p in enumerate(PARAMS) if i not in chosen)
    assert sorted(len(a.params) for a in store) == sorted([len(chosen), len(rest)])
    assert all(torch.equal(F, before[p]) for p, F in parts(store).items())
    taken.F.zero_()
    taken.n[0] += 1
    after = parts(store)
    assert all(torch.equal(after[p], before[p]) for p in rest) and store[rest[0]].n == [3, 3]


def test_single_parameters_grow_together():
    whole = make(PARAMS)
    store = Store(Pairwise, whole.split())
    assert torch.equal(store.take(PARAMS).F, whole.F) and len(list(store)) == 1


def test_averages_of_different_steps_do_not():
    store = Store(Pairwise, [make(PARAMS[:1]), make(PARAMS[1:], n=4)])
    with pytest.raises(RuntimeError, match="different steps"):
        store.find(PARAMS)


def test_parameters_without_averages():
    store = Store(Pairwise)
    assert store.find(PARAMS).F is None and list(store) == []
    assert store.take(PARAMS).params == PARAMS and len(list(store)) == 1
