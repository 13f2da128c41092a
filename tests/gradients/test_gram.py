"""The Gram matrix and the statistics of the rows are what float64 gives, row by row."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from madamoo.gradients import Block, HeadRows, SharedRows, gram_matrix, largest_entry, row_statistics
from madamoo.gradients._gram import PIECE

DTYPES = [torch.bfloat16, torch.float32, torch.float64]


def shared(objectives, stack, rest=None):
    """Rows of one parameter, which has their shape; ``rest`` is one more row."""
    stack = torch.as_tensor(stack)
    block = Block((torch.empty(stack.shape[1:]),))
    flat = stack.reshape(len(stack), -1)
    if rest is not None:
        flat = torch.cat([flat, torch.as_tensor(rest).reshape(1, -1).to(flat)])
    return SharedRows(block, tuple(objectives), flat, has_rest=rest is not None)


def heads(owners, gradients, rest=None):
    """Heads laid end to end; without gradients, there is a rest only."""
    block = Block(tuple(torch.empty(g.shape) for g in gradients), tuple(owners))
    flat = torch.cat([g.reshape(-1) for g in gradients])
    return HeadRows(block, flat.unsqueeze(0) if rest is None else flat.new_empty(0, len(flat)), rest)


def listed(rows):
    """Each objective's gradient by parameter, in float64: [(parameter, objective, gradient)]."""
    number = 0
    for r in rows:
        for param, part in r.block.parts():
            owner = r.block.owners[[*map(id, r.block.params)].index(id(param))] if r.block.owners else None
            objectives = r.objectives if owner is None else (owner,)
            for k, i in enumerate(objectives if len(r.stack) else ()):
                yield number, i, r.stack[k, part].double()
            number += 1


def brute_gram(rows, count):
    K = torch.zeros(count, count, dtype=torch.float64)
    each = list(listed(rows))
    for p, i, g in each:
        for q, j, h in each:
            if p == q:
                K[i, j] += g @ h
    return K


@st.composite
def any_rows(draw, count, dtype):
    """Parameters reached by some objectives only, heads of one and of several, rows of every size."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    sizes = [10.0 ** draw(st.sampled_from([-30, -20, -12, -3, 0, 0, 0, 3, 18, 30])) for _ in range(count)]

    def g(i, shape):
        return (sizes[i] * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)

    rows = []
    for shape in [(7,), (3, 5), (), (0,), (40,)]:
        objectives = sorted(draw(st.sets(st.integers(0, count - 1))))
        if objectives:
            rest = g(0, shape) if draw(st.booleans()) else None
            rows.append(shared(objectives, torch.stack([g(i, shape) for i in objectives]), rest))
    for owners in draw(st.lists(st.lists(st.integers(0, count - 1), min_size=1, max_size=4), max_size=2)):
        gradients = [g(i, (3 + k, 2)) for k, i in enumerate(owners)]
        none = draw(st.integers(0, 3)) == 0
        rows.append(heads(owners, gradients, torch.ones(sum(h.numel() for h in gradients)) if none else None))
    return rows


@settings(max_examples=80, deadline=None, derandomize=True)
@given(data=st.data(), dtype=st.sampled_from(DTYPES), count=st.integers(1, 5))
def test_gram_matrix(data, dtype, count):
    rows = data.draw(any_rows(count, dtype))
    found, wanted = gram_matrix(rows, count), brute_gram(rows, count)
    assert found.dtype == torch.float64 and found.shape == (count, count)
    size, rtol = wanted.diagonal().sqrt(), 1e-14 if dtype == torch.float64 else 1e-5
    for K in (found, found.T):
        assert ((K - wanted).abs() <= rtol * size * size[:, None]).all(), (found, wanted)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data(), count=st.integers(1, 4))
def test_statistics(data, count):
    rows = data.draw(any_rows(count, torch.float32))
    found = row_statistics(rows, ("max_abs", "mean_abs", "block_norms"), count)
    assert row_statistics(rows, (), count) == {}
    each = [torch.cat([torch.zeros(0).double(), *(g for _, j, g in listed(rows) if j == i)]) for i in range(count)]
    wanted = [float(g.abs().max()) if g.numel() else 0.0 for g in each]
    torch.testing.assert_close(found["max_abs"], torch.tensor(wanted).double(), rtol=1e-6, atol=0.0)
    wanted = [float(g.abs().mean()) if g.numel() else 0.0 for g in each]
    torch.testing.assert_close(found["mean_abs"], torch.tensor(wanted).double(), rtol=1e-4, atol=1e-36)
    norms = torch.zeros(count, sum(len(r.block.params) for r in rows), dtype=torch.float64)
    for p, i, g in listed(rows):
        norms[i, p] = g.norm()
    torch.testing.assert_close(found["block_norms"], norms)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_gram_of_extreme_rows(size):
    g = torch.tensor([[3.0, 4.0], [-4.0, 3.0], [1.0, 0.0]]) * size
    wanted = torch.tensor([[25.0, 0, 3], [0, 25, -4], [3, -4, 1]], dtype=torch.float64) * size * size
    torch.testing.assert_close(gram_matrix([shared((0, 1, 2), g)], 3), wanted, rtol=1e-6, atol=1e-6 * size * size)


def test_gram_of_rows_that_are_not_finite():
    for bad in (torch.inf, torch.nan):
        assert not gram_matrix([shared((0, 1), torch.tensor([[bad, 1.0], [1.0, 1.0]]))], 2)[0, 0].isfinite()


def test_the_gram_matrix_of_long_rows():
    for entries in (PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 7):
        stack = torch.randn(3, entries, generator=torch.Generator().manual_seed(entries))
        found, wanted = gram_matrix([shared((0, 1, 2), stack)], 3), stack.double() @ stack.double().T
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5 * entries**0.5)


class Largest(TorchDispatchMode):
    """The size of the largest tensor that comes to be, views of what there was aside."""

    def __init__(self):
        super().__init__()
        self.size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        inside = {t.untyped_storage().data_ptr() for t in args if isinstance(t, torch.Tensor)}
        if isinstance(out, torch.Tensor) and out.untyped_storage().data_ptr() not in inside:
            self.size = max(self.size, out.numel())
        return out


def test_gram_does_not_copy_the_rows(dtype):
    stack = torch.randn(3, 100, 100, dtype=dtype)
    rows = [shared((0, 1, 2), stack)]
    with Largest() as made:
        gram_matrix(rows, 3)
    assert made.size <= 9 * (10_000 // PIECE)  # the small products
    with Largest() as made:
        stack.double() if dtype == torch.float32 else stack.float()
    assert made.size == 30000


def test_largest_entry(dtype):
    """A bound, sharp above the limit; in shared rows, in heads and in what has its weights in it already."""
    for entry in (3.0, -5e30, torch.inf, -torch.inf, torch.nan):
        bad, fine = torch.tensor([entry, 2.0], dtype=dtype), torch.ones(2, dtype=dtype)
        for rows in (
            [shared((0,), torch.stack([fine])), shared((0,), torch.stack([bad]))],
            [shared((0,), torch.stack([fine]), rest=bad)],
            [heads((0, 1), [fine, bad])],
            [heads((0,), [fine], rest=bad), shared((0,), torch.empty(1, 0))],
        ):
            found = largest_entry(rows, 1e18)
            if entry != entry or abs(entry) > 1e18:
                torch.testing.assert_close(torch.tensor(found), torch.tensor(abs(entry)), equal_nan=True)
            else:
                assert abs(entry) <= found <= 1e18
    assert largest_entry([], 1.0) == 0.0
    assert largest_entry([shared((0,), torch.ones(1, 100))], 5.0) == 1.0  # the norm is 10
