"""Averages that are kept in blocks stay the averages of their parameters, however the blocks change."""

import pytest
import torch

from madamoo.gradients import OWN
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
    store = Store([block])
    assert store.find(PARAMS, Pairwise) is block and store.take(PARAMS, Pairwise) is block and list(store) == [block]
    assert all(p in store for p in PARAMS) and torch.empty(1) not in store
    assert torch.equal(store[PARAMS[1]].F, block.F[:, 4:7])


def test_reading_a_part_changes_nothing():
    store = Store([make(PARAMS)])
    found = store.find(PARAMS[1:3], Pairwise)
    assert torch.equal(found.F, store.find(PARAMS, Pairwise).F[:, 4:8])
    assert len(list(store)) == 1


@pytest.mark.parametrize("chosen", [(0,), (1, 3), (0, 1, 2), (3, 0)])
def test_taking_a_part_divides_the_block(chosen):
    store = Store([make(PARAMS)])
    before = parts(store)
    taken = store.take(tuple(PARAMS[i] for i in chosen), Pairwise)
    rest = tuple(p for i, p in enumerate(PARAMS) if i not in chosen)
    assert sorted(len(a.params) for a in store) == sorted([len(chosen), len(rest)])
    assert all(torch.equal(F, before[p]) for p, F in parts(store).items())
    taken.F.zero_()
    taken.n[0] += 1
    after = parts(store)
    assert all(torch.equal(after[p], before[p]) for p in rest) and store[rest[0]].n == [3, 3]


def test_single_parameters_grow_together():
    whole = make(PARAMS)
    store = Store(whole.split())
    assert torch.equal(store.take(PARAMS, Pairwise).F, whole.F) and len(list(store)) == 1


def test_averages_of_different_steps_do_not():
    store = Store([make(PARAMS[:1]), make(PARAMS[1:], n=4)])
    with pytest.raises(RuntimeError, match="different steps"):
        store.find(PARAMS, Pairwise)


def test_heads_are_divided_and_grow_together_again():
    heads = make(PARAMS, pairs=[(OWN, OWN)])
    heads.owners = (2, 0, 2, 1)
    each = heads.split()
    assert [a.pairs for a in each] == [[(2, 2)], [(0, 0)], [(2, 2)], [(1, 1)]] and not any(a.owners for a in each)
    again = Store(each).take(PARAMS, Pairwise)
    assert again.owners == heads.owners and again.pairs == [(OWN, OWN)] and (again.n, again.scale) == ([3], [0.5])
    assert torch.equal(again.F, heads.F)
    rest = Store([heads])
    assert rest.take((PARAMS[0], PARAMS[2]), Pairwise).pairs == [(2, 2)]  # of one objective: a block as any other
    assert rest.find(PARAMS[1::2], Pairwise).owners == (0, 1)


@pytest.mark.parametrize("pairs", [[(0, 0), (0, 1)], []])
def test_heads_do_not_grow_together_with_what_is_none(pairs):
    store = Store([make(PARAMS[:2], pairs=[(1, 1)]), make(PARAMS[2:], pairs=pairs)])
    with pytest.raises(RuntimeError, match="different steps"):
        store.find(PARAMS, Pairwise)


def test_parameters_without_averages():
    store = Store()
    assert store.find(PARAMS, Pairwise).F is None and list(store) == []
    assert store.take(PARAMS, Pairwise).params == PARAMS and len(list(store)) == 1
