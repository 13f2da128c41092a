"""Averages that are kept in blocks stay the averages of their parameters, however the blocks change."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from madamoo.gradients import Block, Found, Layout
from madamoo.metric._pairwise import PairAverages
from madamoo.metric._separable import Groups, SeparableAverages
from madamoo.metric._store import Store

PARAMS = tuple(torch.empty(shape) for shape in [(9, 30), (3,), (), (40, 5)])
KINDS = (PairAverages, SeparableAverages)


def make(kind, params=PARAMS, owners=(), n=3):
    """Averages with numbers in them; of two objectives, or of heads."""
    block = Block(tuple(params), tuple(owners))
    pairs = [None] if owners else [(0, 0), (0, 1), (1, 1)]
    counts = [n] * len(pairs)
    if kind is PairAverages:
        F = torch.arange(1.0 * len(pairs) * block.entries).view(len(pairs), -1)
        return PairAverages(block, block.owners, None, pairs, counts, [0.5] * len(pairs), F)
    groups = Groups(params, 3)
    v, T = torch.arange(1.0 * block.entries), torch.arange(1.0 * groups.total)
    S = torch.arange(1.0 * len(pairs) * groups.total).view(len(pairs), -1)
    return SeparableAverages(block, block.owners, None, pairs, counts, 0.5, v, S, T, groups)


def empty(kind):
    def made(block):
        return kind(block, block.owners)

    return made


def keep(*averages):
    """A store of these, with the layout that they make."""
    layout = Layout(None, [a.block for a in averages])
    return Store(empty(type(averages[0])), layout, {a.block: a for a in averages})


def parts(store):
    return {
        a.block.params[0]: (a.pairs, a.n, a.scale, [t.clone() for t in a.tensors()])
        for block in store
        for a in block.split()
    }


def check_same(store, wanted):
    found = parts(store)
    assert found.keys() == wanted.keys()
    for p, (*rest, tensors) in found.items():
        assert rest == list(wanted[p][:3]) and all(map(torch.equal, tensors, wanted[p][3]))


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_are_divided_and_joined_again(kind):
    whole = make(kind)
    store = keep(whole)
    before = parts(store)
    for chosen in [(0,), (1, 3), (0, 1, 2), (3, 0)]:
        rest = [p for k, p in enumerate(PARAMS) if k not in chosen]
        layout = Layout(None, [Block(tuple(PARAMS[k] for k in chosen)), Block(tuple(rest))])
        divided = store.repacked(layout)
        check_same(divided, before)
        assert divided.layout is layout and len(list(divided)) == 2
        taken = divided.at(layout.blocks[0])
        taken.tensors()[0].zero_()  # memory of its own: neither the others nor the store that was divided see it
        taken.n[0] += 1
        check_same(store, before)
        assert all(torch.equal(parts(divided)[p][3][0], before[p][3][0]) for p in rest)
    again = keep(*whole.split()).repacked(Layout(None, [Block(PARAMS)]))
    (joined,) = again
    assert all(map(torch.equal, joined.tensors(), whole.tensors())) and joined.pairs == whole.pairs


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_that_stay_are_not_copied(kind):
    a, b = make(kind, PARAMS[:2]), make(kind, PARAMS[2:])
    store = keep(a, b)
    assert store.repacked(store.layout) is store
    later = store.repacked(Layout(None, [a.block, *b.block.split()]))
    assert later.at(a.block) is a and len(list(later)) == 3
    assert all(p in store for p in PARAMS) and torch.empty(1) not in store
    assert torch.equal(store[PARAMS[3]].tensors()[0], b.split()[1].tensors()[0])


@pytest.mark.parametrize("kind", KINDS)
def test_heads_are_divided_and_joined_again(kind):
    """Each by the pair of its own objective; then they may be joined, or become shared."""
    heads = make(kind, owners=(2, 0, 2, 1))
    each = heads.split()
    assert [a.pairs for a in each] == [[(2, 2)], [(0, 0)], [(2, 2)], [(1, 1)]] and not any(a.owners for a in each)
    (again,) = keep(*each).repacked(Layout(None, [Block(PARAMS, (2, 0, 2, 1))]))
    assert again.owners == heads.owners and again.pairs == [None] and (again.n, again.scale) == (heads.n, heads.scale)
    assert all(map(torch.equal, again.tensors(), heads.tensors()))
    blocks = [Block((PARAMS[0], PARAMS[2])), Block((PARAMS[1],)), Block((PARAMS[3],), (1,))]
    former = keep(heads).repacked(Layout(None, blocks))
    assert [former.at(block).pairs for block in blocks] == [[(2, 2)], [(0, 0)], [None]]
    check_same(former, parts(keep(heads)))


@pytest.mark.parametrize("kind", KINDS)
def test_averages_of_different_steps_are_never_joined(kind):
    whole = Layout(None, [Block(PARAMS)])
    heads = Layout(None, [Block(PARAMS, (1, 1, 1, 1))])
    first = make(kind, PARAMS[:2])
    for second, layout in (
        (make(kind, PARAMS[2:], n=4), whole),
        (make(kind, PARAMS[2:], owners=(1, 1)), whole),
        (make(kind, PARAMS[2:]), heads),  # all of the same pairs, but not those of heads
    ):
        with pytest.raises(RuntimeError, match="different steps"):
            keep(first, second).repacked(layout)
    only = make(kind, PARAMS, owners=(2, 2, 2, 2))
    with pytest.raises(RuntimeError, match="different steps"):  # of another objective
        keep(only).repacked(heads)


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_without_averages(kind):
    store = Store(empty(kind))
    assert list(store) == [] and PARAMS[0] not in store
    later = store.repacked(Layout(None, [Block(PARAMS)]))
    (averages,) = later
    assert averages.tensors() == [] and PARAMS[0] not in later
    divided = later.repacked(Layout(None, Block(PARAMS).split()))
    assert [a.pairs for a in divided] == [[]] * 4 and divided[PARAMS[2]].tensors() == []
    (joined,) = divided.repacked(Layout(None, [Block(PARAMS, (1, 0, 1, 1))]))
    assert joined.owners == (1, 0, 1, 1) and joined.tensors() == []
    grown = joined.grown([None], 3, torch.float32, torch.device("cpu"))
    assert grown.tensors()[0].shape[-1] == sum(p.numel() for p in PARAMS)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    kind=st.sampled_from(KINDS),
    reached=st.lists(st.lists(st.sets(st.integers(0, 2)), min_size=4, max_size=4), min_size=1, max_size=5),
)
def test_averages_follow_any_layout(kind, reached):
    """Mark each parameter's averages; whatever the batches show, the mark stays with the parameter."""
    store, layout, mark = Store(empty(kind)), Layout(), {}
    for t, each in enumerate(reached):
        present = sorted({i for objectives in each for i in objectives})
        rows = {
            i: [torch.zeros_like(p) if i in o else None for p, o in zip(PARAMS, each, strict=True)] for i in present
        }
        packed, layout = layout.pack(Found(rows), PARAMS)
        store = store.repacked(layout)
        assert {*layout.blocks} == {a.block for a in store}
        for r in packed:
            pairs = [None] if r.block.owners else [(i, i) for i in r.objectives]
            grown = store.at(r.block).grown(pairs, 3, torch.float32, torch.device("cpu"))
            grown.tensors()[0].fill_(float(t))
            grown.n = [n + (pair in pairs) for pair, n in zip(grown.pairs, grown.n, strict=True)]
            store.put(grown)
            for p in r.block.params:
                objectives = each[next(k for k, q in enumerate(PARAMS) if q is p)]
                old = mark.get(p, (0.0, {}))[1]
                mark[p] = float(t), {i: old.get(i, 0) + (i in objectives) for i in {*old, *objectives}}
    for p, (value, counts) in mark.items():
        kept = store[p]
        assert {pair: n for pair, n in zip(kept.pairs, kept.n, strict=True)} == {(i, i): n for i, n in counts.items()}
        assert (kept.tensors()[0] == value).all()
