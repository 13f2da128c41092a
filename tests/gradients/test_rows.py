"""Blocks of parameters and their rows: where each parameter is, and what is whose."""

import torch

from madamoo.gradients import Block, HeadRows, SharedRows, are_same, by_param, spread

PARAMS = tuple(torch.empty(shape) for shape in [(2, 3), (), (0,), (1,)])


def test_where_parameters_are_in_a_block():
    block = Block(PARAMS)
    assert block.sizes == [6, 1, 0, 1] and block.entries == 8 and block.owner is None
    assert [part for _, part in block.parts()] == [slice(0, 6), slice(6, 7), slice(7, 7), slice(7, 8)]
    assert are_same([p for p, _ in block.parts()], PARAMS)
    assert [(b.params[0] is p, b.owners) for b, p in zip(block.split(), PARAMS, strict=True)] == [(True, ())] * 4


def test_the_owner_of_a_block_of_heads():
    heads = Block(PARAMS, (2, 0, 2, 1))
    assert heads.owner is None and Block(PARAMS, (2,) * 4).owner == 2
    assert [(b.owners, b.owner) for b in heads.split()] == [((i,), i) for i in (2, 0, 2, 1)]
    like = torch.empty(0, dtype=torch.float64)
    assert heads.spread([0.1, 0.2, 0.3, 0.4], like).tolist() == [0.1] * 6 + [0.2, 0.4]


def test_a_flat_tensor_cut_into_parameters():
    """In their shape, dtype and memory layout, on which fused optimizers rely."""
    flat = torch.arange(8.0)
    found = Block(PARAMS).unflatten(flat)
    assert [x.shape for x in found] == [p.shape for p in PARAMS]
    assert found[0].data_ptr() == flat.data_ptr() and found[3].item() == 7.0  # views
    half = Block(tuple(p.bfloat16().requires_grad_() for p in PARAMS)).unflatten(flat)
    assert {x.dtype for x in half} == {torch.bfloat16} and half[0].tolist() == [[0, 1, 2], [3, 4, 5]]
    images = torch.nn.Parameter(torch.empty(2, 3, 4, 4).to(memory_format=torch.channels_last))
    plain = torch.nn.Parameter(torch.empty(2))
    out = torch.randn(98)
    first, second = Block((images, plain)).unflatten(out)
    assert first.stride() == images.stride() and not first.requires_grad and torch.equal(second, out[96:])
    assert torch.equal(first, out[:96].view(2, 3, 4, 4))


def test_blocks_and_rows_are_told_apart_by_identity():
    assert Block(PARAMS) != Block(PARAMS) and len({Block(PARAMS), Block(PARAMS)}) == 2
    assert are_same(PARAMS, [*PARAMS]) and are_same((), [])
    assert not are_same(PARAMS, PARAMS[:3])
    assert not are_same([torch.zeros(1)], [torch.zeros(1)])
    assert not are_same(PARAMS[:2], PARAMS[1::-1])


def test_shared_rows_by_parameter_and_by_objective():
    """With a rest as without: it belongs to no objective."""
    stack = torch.arange(24.0).view(3, 8)
    for rows in (SharedRows(Block(PARAMS), (3, 1), stack, has_rest=True), SharedRows(Block(PARAMS), (3, 1), stack[:2])):
        found = list(rows.by_param())
        assert are_same([p for p, _, _ in found], PARAMS) and {objectives for _, objectives, _ in found} == {(3, 1)}
        assert [g.shape for _, _, g in found] == [(2, *p.shape) for p in PARAMS]
        assert torch.equal(found[0][2], stack[:2, :6].view(2, 2, 3)) and torch.equal(found[3][2], stack[:2, 7:])
        assert [(i, g.tolist()) for i, g in rows.pieces()] == [(3, stack[0].tolist()), (1, stack[1].tolist())]


def test_head_rows_by_parameter_and_by_objective():
    block, stack = Block(PARAMS, (2, 0, 2, 1)), torch.arange(8.0).unsqueeze(0)
    rows = HeadRows(block, stack, rest=torch.ones(8))
    found = list(by_param([rows]))
    assert [(p.shape, objectives, g.shape) for p, objectives, g in found] == [
        (p.shape, (i,), (1, *p.shape)) for p, i in zip(PARAMS, (2, 0, 2, 1), strict=True)
    ]
    assert found[1][2].tolist() == [6.0]
    assert [(i, g.tolist()) for i, g in rows.pieces()] == [(2, [0, 1, 2, 3, 4, 5]), (0, [6]), (2, []), (1, [7])]
    none = HeadRows(block, stack[:0], rest=torch.ones(8))
    assert [(objectives, len(g)) for _, objectives, g in none.by_param()] == [((), 0)] * 4
    assert list(none.pieces()) == []


def test_spread():
    like = torch.empty(0, dtype=torch.float64)
    assert spread([0.1, 0.2, 0.3], [1, 0, 2], like).tolist() == [0.1, 0.3, 0.3]
    found = spread([0.1, 0.1], [1, 2], like)
    assert found.tolist() == [0.1] * 3 and found.dtype == torch.float64
