"""Parameters that are always reached by the same objectives are laid end to end, and nothing gets lost on the way."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from madamoo.gradients import ALONE, Found, HeadRows, Layout, SharedRows, are_same, unpack
from madamoo.gradients._layout import MOST_PLANS

SHAPES = [(2, 3), (), (0,), (4,), (2, 3), (4,), (1, 5)]
COUNT = 3


def found_of(params, reached, rest=None, seed=0):
    """Random gradients: of each parameter, those of the objectives that reach it, and of the rest where it does."""
    generator = torch.Generator().manual_seed(seed)

    def g(param):
        return torch.randn(param.shape, generator=generator, dtype=torch.float64).to(param.dtype)

    present = sorted({i for each in reached for i in each})
    rows = {i: [g(p) if i in each else None for p, each in zip(params, reached, strict=True)] for i in present}
    summed = None if rest is None else [g(p) if there else None for p, there in zip(params, rest, strict=True)]
    return Found(rows, summed)


def copied(found):
    return Found({i: [*row] for i, row in found.rows.items()}, None if found.rest is None else [*found.rest])


def check_same(found, wanted):
    pairs = [(found.rows[i], wanted.rows[i]) for i in wanted.rows]
    if wanted.rest is not None and any(g is not None for g in wanted.rest):  # a rest of nothing is none
        pairs.append((found.rest, wanted.rest))
    for row, other in pairs:
        for g, h in zip(row, other, strict=True):
            assert (g is None) == (h is None) and (g is None or torch.equal(g, h))


def check(rows, layout, reach):
    """What has to hold of rows and the layout that they came with; ``reach`` is what ever reached each parameter."""
    assert layout.reach == reach
    held = [p for block in layout.blocks for p in block.params]
    assert len(held) == len({*held}) == len(reach)
    for block in layout.blocks:
        each = [reach[p] for p in block.params]
        assert all(block.owners == () and e == each[0] for e in each) or list(map(set, each)) == [
            {i} for i in block.owners
        ]
        assert len({(p.dtype, p.device) for p in block.params}) == 1
        assert all(i >= 0 for i in block.owners)
        if len({*block.owners}) > 1:
            assert [p.shape for p in block.params] == sorted(p.shape for p in block.params)
    for r in rows:
        assert r.block in layout.blocks and isinstance(r, HeadRows if r.block.owners else SharedRows)
        assert r.stack.shape[1] == r.block.entries
        if isinstance(r, SharedRows):
            assert len(r.stack) == len(r.objectives) + r.has_rest
        else:
            assert len(r.stack) + (r.rest is not None) >= 1 and len(r.stack) <= 1


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    batches=st.lists(
        st.tuples(
            st.lists(st.sets(st.integers(0, COUNT - 1)), min_size=len(SHAPES), max_size=len(SHAPES)),
            st.none() | st.lists(st.booleans(), min_size=len(SHAPES), max_size=len(SHAPES)),
        ),
        min_size=1,
        max_size=6,
    ),
    heads_together=st.booleans(),
)
def test_any_sequence_of_batches(batches, heads_together):
    """The rows are those that went in; blocks are divided and never joined; the layout survives a checkpoint."""
    params, layout = [torch.empty(shape) for shape in SHAPES], Layout()
    reach: dict[torch.Tensor, frozenset[int]] = {}
    for seed, (reached, rest) in enumerate(batches):
        found = found_of(params, reached, rest, seed)
        for k, p in enumerate(params):
            if reached[k] or (rest is not None and rest[k]):
                reach[p] = reach.get(p, frozenset()) | reached[k]
        before, wanted = layout, copied(found)
        known = dict(before.reach), before.blocks
        rows, layout = before.pack(found, params, heads_together=heads_together)
        check(rows, layout, reach)
        assert (before.reach, before.blocks) == known  # a layout never changes
        check_same(unpack(rows, params), wanted)
        assert all(g is None for row in found.rows.values() for g in row)  # used up
        old = {p: {*block.params} for block in before.blocks for p in block.params}
        assert all(
            len({*block.params} - old.get(p, {*block.params})) == 0 for block in layout.blocks for p in block.params
        )
        again, same = layout.pack(copied(wanted), params, heads_together=heads_together)
        assert same is layout and [r.block for r in again] == [r.block for r in rows]
        if not heads_together:
            assert all(len({*block.owners}) <= 1 for block in layout.blocks)
        loaded = Layout.load(layout.state_dict(params), params)
        assert loaded.reach == layout.reach
        assert [(*map(id, b.params), b.owners) for b in loaded.blocks] == [
            (*map(id, b.params), b.owners) for b in layout.blocks
        ]


def test_a_head_that_others_reach_later_is_shared_from_then_on():
    x, y = torch.empty(2), torch.empty(3)
    rows, layout = Layout().pack(found_of([x, y], [{0}, {2}]), [x, y])
    assert [(r.block.owners, tuple(r.stack.shape)) for r in rows] == [((0, 2), (1, 5))]
    rows, later = layout.pack(found_of([x, y], [{1}, set()]), [x, y])
    assert [(r.block.params, r.objectives) for r in rows] == [((x,), (1,))]
    assert later.reach == {x: {0, 1}, y: {2}} and {b.params: b.owners for b in later.blocks} == {(x,): (), (y,): (2,)}
    rows, last = later.pack(found_of([x, y], [{0}, {2}]), [x, y])
    assert last is later
    assert [(type(r), r.block.params[0] is p) for r, p in zip(rows, (x, y), strict=True)] == [
        (SharedRows, True),
        (HeadRows, True),
    ]


def test_heads_of_different_objectives_that_become_shared_together_part():
    """Their averages are of different objectives; those of one objective stay together."""
    params = [torch.empty(2), torch.empty(3), torch.empty(4)]
    _, layout = Layout().pack(found_of(params, [{0}, {1}, {0}]), params)
    assert len(layout.blocks) == 1
    rows, layout = layout.pack(found_of(params, [{0, 1}] * 3), params)
    assert sorted(r.block.sizes for r in rows) == [[2, 4], [3]] and all(r.objectives == (0, 1) for r in rows)


def test_what_is_never_in_one_block():
    """Parameters of other dtypes or groups, those that are kept apart, and large ones, which are not copied."""
    params = [torch.empty(2), torch.empty(2, dtype=torch.float64), torch.empty(2), torch.empty(2), torch.empty(2)]
    params.append(torch.empty(ALONE))
    found = found_of(params, [{0, 1}] * 5 + [{0}])
    large = found.rows[0][5]
    groups = dict(zip(params, (0, 0, 1, 0, 0, 0), strict=True))
    rows, layout = Layout().pack(found, params, groups.__getitem__, apart={params[4]})
    blocks = {tuple(next(k for k, q in enumerate(params) if p is q) for p in b.params) for b in layout.blocks}
    assert blocks == {(0, 3), (1,), (2,), (4,), (5,)}
    assert isinstance(rows[-1], HeadRows) and rows[-1].stack.data_ptr() == large.data_ptr()
    two = [torch.empty(ALONE), torch.empty(ALONE - 1), torch.empty(1)]
    _, layout = Layout().pack(found_of(two, [{0}] * 3), two)
    assert [len(b.params) for b in layout.blocks] == [1, 2]


def test_other_parameters_are_planned_afresh():
    """The same pattern of gradients, but of other parameters: those that train may change."""
    a, b, c = torch.empty(1), torch.empty(2), torch.empty(3)
    _, layout = Layout().pack(found_of([a, b], [{0}, {0}]), [a, b])
    rows, later = layout.pack(found_of([b, c], [{0}, {0}]), [b, c])
    assert [p.numel() for r in rows for p in r.block.params] == [2, 3] and later.reach.keys() == {a, b, c}


def test_many_patterns_do_not_grow_without_end():
    params = [torch.empty(1) for _ in range(7)]
    layout = Layout().pack(found_of(params, [{0, 1}] * 7), params)[1]
    for k in range(1, 128):
        reached = [{0, 1} if k >> p & 1 else set() for p in range(7)]
        wanted = found_of(params, reached)
        rows, layout = layout.pack(copied(wanted), params)
        check_same(unpack(rows, params), wanted)
    assert len(layout._plans) <= MOST_PLANS and len(layout.blocks) == 7
    assert any(layout._plans.values())


def test_the_state_holds_the_parameters_of_the_optimizer_only():
    """One that was taken out of the optimizer leaves no empty block behind."""
    a, b, c = torch.empty(1), torch.empty(2), torch.empty(3)
    _, layout = Layout().pack(found_of([a, b, c], [{0, 1}, {2}, {2}]), [a, b, c])
    state = layout.state_dict([c, b])
    assert state == {"reach": {0: [2], 1: [2]}, "blocks": [[1, 0]]}
    loaded = Layout.load(state, [c, b])
    assert loaded.reach == {b: {2}, c: {2}}
    assert [block.owners for block in loaded.blocks] == [(2, 2)]
    assert are_same(loaded.blocks[0].params, (b, c))


def test_a_state_that_is_none_is_refused():
    params = [torch.empty(1), torch.empty(2)]
    with pytest.raises(ValueError, match="heads and shared"):
        Layout.load({"reach": {0: [0], 1: [0, 1]}, "blocks": [[0, 1]]}, params)
    with pytest.raises(ValueError, match=r"objectives \[-2\]"):
        Layout.load({"reach": {0: [-2]}, "blocks": [[0]]}, params)
