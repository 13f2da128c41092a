"""Rows are the gradients that torch gives for each loss alone; their Gram matrix is what float64 gives."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from madamoo.gradients import (
    ALONE,
    OWN,
    REST,
    Rows,
    add_rows,
    compute_rows,
    drop_zero_rows,
    gram_matrix,
    largest_entry,
    pack,
    read_losses,
    spread,
    unpack,
)
from madamoo.gradients._rows import PIECE

EACH = {i: {i: 1.0} for i in range(3)}
FORMS = ["sequence", "tuple", "dict", "shape [1]", "stack", "dense", "cat"]


def alone(params, loss):
    """What torch gives for one loss."""
    return torch.autograd.grad(loss, params, retain_graph=True, allow_unused=True)


def listed(rows, params):
    """Of each parameter, the rows by key."""
    found = unpack(rows)
    return [found.get(p, {}) for p in params]


def block(keys, stack, shape=None):
    """Rows of one parameter, made up for them."""
    stack = torch.as_tensor(stack)
    return Rows((torch.empty(stack.shape[1:] if shape is None else shape),), tuple(keys), stack.reshape(len(stack), -1))


@pytest.mark.parametrize("form", FORMS)
def test_one_row_an_objective(form, forms, problem):
    params, make = problem
    losses = make()
    wanted = [alone(params, loss) for loss in losses]
    found = compute_rows(read_losses(forms[form](losses)), params, EACH)
    for p, rows in enumerate(listed(found, params)):
        for i, row in rows.items():
            torch.testing.assert_close(row, wanted[i][p] if wanted[i][p] is not None else torch.zeros_like(row))
    reach = [set(rows) for rows in listed(found, params)]
    if form in ("dense", "cat"):  # zeros where the objective does not reach
        assert reach == [{0, 1, 2}] * 4 + [set()]
        found = drop_zero_rows(found, {})
        reach = [set(rows) for rows in listed(found, params)]
    assert reach == [{0, 1, 2}, {0}, {1}, {2}, set()]  # the last parameter is not used


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scale", [1.0, 2.0**16])
def test_the_rest_row_is_the_weighted_sum(scale, form, forms, problem):
    params, make = problem
    losses = make()
    wanted = torch.autograd.grad(0.25 * losses[0] - 3.0 * losses[2], params[:4], retain_graph=True, allow_unused=True)
    one = alone(params, losses[1])
    found = compute_rows(read_losses(forms[form](losses)), params, {1: {1: 1.0}, REST: {0: 0.25, 2: -3.0}}, scale=scale)
    trunk, *heads = listed(found, params)
    assert tuple(trunk) == (1, REST)
    torch.testing.assert_close(list(trunk.values()), [one[0], wanted[0]])
    for p in (1, 3):
        torch.testing.assert_close(heads[p - 1][REST], wanted[p])


def test_a_coefficient_of_zero_still_reaches(problem):
    params, make = problem
    found = listed(compute_rows(read_losses(make()), params, {REST: {0: 0.0, 1: 1.0}}), params)
    assert set(found[1]) == {REST} and not found[1][REST].any()
    assert not found[3]


def test_missing_objectives_have_no_row(problem):
    params, make = problem
    a, _, c = make()
    found = compute_rows(read_losses([a, None, c]), params, {0: {0: 1.0}, 2: {2: 1.0}})
    assert [set(rows) for rows in listed(found, params)] == [{0, 2}, {0}, set(), {2}, set()]


def test_the_same_loss_twice(problem):
    params, make = problem
    loss = make()[0]
    wanted = alone(params, loss)[0]
    for losses in ([loss, loss], torch.stack([loss, loss])):
        batch = read_losses(losses)
        found = compute_rows(batch, params, {0: {0: 1.0}, REST: {0: 1.0, 1: 2.0}}, retain_graph=True)
        torch.testing.assert_close(list(unpack(found)[params[0]].values()), [wanted, 3 * wanted])


def test_losses_of_different_precision():
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, dtype=torch.float64, requires_grad=True)
    batch = read_losses(torch.stack([a.sum() * 2, b.sum() * 3]))
    found = compute_rows(batch, [a, b], {0: {0: 1.0}, 1: {1: 1.0}})
    assert found[0].stack.tolist() == [[2, 2]] and found[0].stack.dtype == torch.float32
    assert found[1].stack.tolist() == [[3, 3]] and found[1].stack.dtype == torch.float64


def test_a_parameter_that_is_a_loss():
    a = torch.tensor(2.0, requires_grad=True)
    for losses in ([a, a * a], torch.stack([a, a * a])):
        (rows,) = compute_rows(read_losses(losses), [a], {0: {0: 1.0}, 1: {1: 1.0}})
        assert rows.stack.tolist() == [[1.0], [4.0]]


@pytest.mark.parametrize("form", FORMS)
def test_the_graph_is_freed_by_the_last_pass(form, forms, problem):
    params, make = problem
    losses = forms[form](make())
    kept = compute_rows(read_losses(losses), params, EACH, retain_graph=True)
    again = compute_rows(read_losses(losses), params, EACH)
    assert all(torch.equal(a.stack, b.stack) for a, b in zip(kept, again, strict=True))
    with pytest.raises(RuntimeError, match="second time"):
        compute_rows(read_losses(losses), params, EACH)


def test_sparse_gradients_are_refused():
    table = torch.nn.Embedding(4, 2, sparse=True)
    loss = table(torch.tensor([1, 2])).sum()
    with pytest.raises(TypeError, match="sparse=False"):
        compute_rows(read_losses([loss]), [table.weight], {0: {0: 1.0}})


def test_several_passes_leave_grad_alone(problem):
    params, make = problem
    compute_rows(read_losses(make()), params, EACH)
    assert all(p.grad is None for p in params)


# -- sums of micro-batches -------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, derandomize=True)
@given(a=st.sets(st.integers(-1, 3)), b=st.sets(st.integers(-1, 3)), flip=st.booleans())
def test_rows_add_key_by_key(a, b, flip):
    param, other = torch.empty(2), torch.empty(3)

    def make(keys, base):
        own = (
            [Rows((param,), tuple(keys), torch.stack([torch.arange(2.0) + base * (k + 2) for k in keys]))]
            if keys
            else []
        )
        return [*own, Rows((other,), (0,), torch.full((1, 3), base))]

    x, y = make(sorted(a, reverse=flip), 1.0), make(sorted(b), 10.0)
    before = [[r.stack.clone() for r in rows] for rows in (x, y)]
    found, also = listed(add_rows(x, y), [param, other])
    parts = [listed(rows, [param])[0] for rows in (x, y)]
    wanted = {k: sum(d[k] for d in parts if k in d) for k in a | b}
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[k], wanted[k]) for k in wanted)
    assert also[0].tolist() == [11.0] * 3
    for rows, stacks in zip((x, y), before, strict=True):  # never in place
        assert all(torch.equal(r.stack, stack) for r, stack in zip(rows, stacks, strict=True))


def test_zero_rows_of_objectives_that_reach_stay():
    """Dropped where the objective is alive elsewhere, unless it is known to reach, or dead everywhere."""
    a, b = torch.empty(2), torch.empty(1)
    rows = [Rows((a, b), (0, 1, 2), torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0]]))]
    found = listed(drop_zero_rows(rows, {a: frozenset({1})}), [a, b])
    assert set(found[0]) == {0, 1, 2}  # 1 is known to reach, 2 is zero everywhere
    assert {key: row.tolist() for key, row in found[1].items()} == {1: [2.0], 2: [0.0]}


# -- blocks ----------------------------------------------------------------------------------------------------------


def test_blocks_hold_parameters_that_the_same_objectives_reach():
    params = [torch.empty(shape) for shape in [(2, 3), (), (0,), (4,), (5,)]]
    params.append(torch.empty(2, dtype=torch.float64))
    reach = [(0, 1), (0, 1), (0, 1), (1,), (0, 1), (0, 1)]
    letters = dict(zip(params, "aaaaba", strict=True))
    given = {p: {k: torch.randn_like(p) for k in keys} for p, keys in zip(params, reach, strict=True)}
    wanted = {p: dict(rows) for p, rows in given.items()}
    found = pack({p: dict(rows) for p, rows in given.items()}, lambda p, keys: (letters[p], keys))
    assert sorted(len(r.params) for r in found) == [1, 1, 1, 3]
    for p, rows in unpack(found).items():
        assert rows.keys() == wanted[p].keys() and all(torch.equal(rows[k], wanted[p][k]) for k in rows)
        assert all(row.dtype == p.dtype for row in rows.values())


def heads_together(param, keys):
    return "head" if len(keys) == 1 else keys


@pytest.mark.parametrize("seed", range(5))
def test_heads_may_share_a_block(seed):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(2, 3), (), (0,), (4,), (2, 3), (4,), (1, 5)]
    reach = [[(0,), (1,), (2,), (0, 1, 2)][k] for k in torch.randint(4, (7,), generator=generator)]
    given = {
        torch.empty(shape): {key: torch.randn(shape, generator=generator, dtype=torch.float64) for key in keys}
        for shape, keys in zip(shapes, reach, strict=True)
    }
    apart = pack({p: dict(rows) for p, rows in given.items()})
    together = pack({p: dict(rows) for p, rows in given.items()}, heads_together)
    assert len(together) == len({heads_together(None, keys) for keys in reach})
    found = unpack(together)
    assert {*found} == {*given}
    for p, rows in found.items():
        assert rows.keys() == given[p].keys() and all(torch.equal(row, given[p][key]) for key, row in rows.items())
    for r in together:
        if r.owners:
            assert r.keys == (OWN,) and len(r.stack) == 1 and len(r.owners) == len(r.params)
            assert [p.shape for p in r.params] == sorted(p.shape for p in r.params)
    torch.testing.assert_close(gram_matrix(together, 3), gram_matrix(apart, 3))
    assert gram_matrix(together, 3).count_nonzero() == gram_matrix(apart, 3).count_nonzero()


def test_heads_of_other_objectives_add_up():
    a, b = torch.empty(2), torch.empty(2)
    first = pack({a: {0: torch.ones(2)}, b: {1: torch.ones(2)}}, heads_together)
    second = pack({a: {1: torch.ones(2)}, b: {0: torch.ones(2)}}, heads_together)
    assert first[0].owners == (0, 1) and second[0].owners == (1, 0)
    (same,) = add_rows(first, first, heads_together)
    assert same.owners == (0, 1) and same.stack.tolist() == [[2.0] * 4]
    for r in add_rows(first, second, heads_together):
        assert not r.owners and {*r.keys} == {0, 1} and r.stack.tolist() == [[1.0] * 2] * 2


def test_spread():
    like = torch.empty(0, dtype=torch.float64)
    assert spread([0.1, 0.2, 0.3], [1, 0, 2], like).tolist() == [0.1, 0.3, 0.3]
    assert spread([0.1, 0.1], [1, 2], like).tolist() == [0.1] * 3


def test_large_parameters_are_blocks_of_their_own_and_not_copied():
    large, small = torch.empty(ALONE), [torch.empty(3), torch.empty(2, 2)]
    g = torch.randn(ALONE)
    found = pack({small[0]: {0: torch.ones(3)}, large: {0: g}, small[1]: {0: torch.ones(2, 2)}})
    assert [r.params for r in found] == [tuple(small), (large,)]
    assert found[1].stack.data_ptr() == g.data_ptr()


@pytest.mark.parametrize("entry", [3.0, -5e30, float("inf"), float("-inf"), float("nan")])
def test_largest_entry(entry, dtype):
    rows = [block((0,), torch.ones(1, 4, dtype=dtype)), block((0,), torch.tensor([[entry, 2.0]], dtype=dtype))]
    found = largest_entry(rows, 1e18)
    if entry != entry or abs(entry) > 1e18:  # sharp above the limit
        torch.testing.assert_close(torch.tensor(found), torch.tensor(abs(entry)), equal_nan=True)
    else:
        assert abs(entry) <= found <= 1e18
    assert largest_entry([], 1.0) == 0.0


# -- Gram matrix -----------------------------------------------------------------------------------------------------


def brute_gram(rows, count):
    """Scalar products in float64, key by key, each row made as long as all parameters together."""
    none = torch.zeros(0, dtype=torch.float64)
    reached = [(dict(zip(r.keys, r.stack, strict=True)), torch.zeros(r.stack[0].shape)) for r in rows]
    whole = [torch.cat([none, *(r.get(i, zero).double().reshape(-1) for r, zero in reached)]) for i in range(count)]
    return torch.tensor([[float(a @ b) for b in whole] for a in whole], dtype=torch.float64)


def check_gram(rows, count, rtol):
    found, wanted = gram_matrix(rows, count), brute_gram(rows, count)
    assert found.dtype == torch.float64 and found.shape == (count, count)
    size = wanted.diagonal().sqrt()
    for K in (found, found.T):
        assert ((K - wanted).abs() <= rtol * size * size[:, None]).all(), (found, wanted)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(data=st.data(), dtype=st.sampled_from([torch.bfloat16, torch.float32, torch.float64]), count=st.integers(1, 5))
def test_gram_matrix(data, dtype, count):
    """Parameters reached by some objectives only, rows of every size from 1e-30 to 1e30."""
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**32)))
    sizes = [10.0 ** data.draw(st.sampled_from([-30, -20, -12, -3, 0, 0, 0, 3, 18, 30])) for _ in range(count)]
    rows = []
    for shape in [(7,), (3, 5), (2, 2, 2), (40,)]:
        keys = sorted(data.draw(st.sets(st.integers(0, count - 1))))
        if keys:
            stack = torch.stack([sizes[k] * torch.randn(shape, generator=generator, dtype=torch.float64) for k in keys])
            rows.append(block(keys, stack.to(dtype)))
    check_gram(rows, count, rtol=1e-14 if dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_gram_of_extreme_rows(size, dtype):
    g = torch.tensor([[3.0, 4.0], [-4.0, 3.0], [1.0, 0.0]], dtype=dtype) * size
    wanted = torch.tensor([[25.0, 0, 3], [0, 25, -4], [3, -4, 1]], dtype=torch.float64) * size * size
    torch.testing.assert_close(gram_matrix([block((0, 1, 2), g)], 3), wanted, rtol=1e-6, atol=1e-6 * size * size)


def test_gram_of_an_unreached_objective():
    rows = [block((0, 2), torch.tensor([[2.0], [3.0]])), block((2,), torch.ones(1, 4))]
    wanted = torch.tensor([[4.0, 0, 6], [0, 0, 0], [6, 0, 13]], dtype=torch.float64)
    assert torch.equal(gram_matrix(rows, 3), wanted)


def test_a_parameter_without_dimensions_is_one_coordinate():
    rows = [block((0, 1), torch.tensor([[2.0], [0.0]]), ()), block((1,), torch.tensor([[3.0, 1.0]]))]
    assert gram_matrix(rows, 2).tolist() == [[4.0, 0.0], [0.0, 10.0]]
    assert [r.keys for r in drop_zero_rows(rows, {})] == [(0,), (1,)]


@pytest.mark.parametrize("entries", [PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 7])
def test_the_gram_matrix_of_long_rows(entries):
    stack = torch.randn(3, entries)
    wanted = stack.double() @ stack.double().T
    torch.testing.assert_close(gram_matrix([block((0, 1, 2), stack)], 3), wanted, rtol=1e-5, atol=1e-5 * entries**0.5)


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
    rows = [block((0, 1, 2), stack)]
    with Largest() as made:
        gram_matrix(rows, 3)
    assert made.size <= 9 * (10_000 // PIECE)  # the small products
    with Largest() as made:
        stack.double() if dtype == torch.float32 else stack.float()
    assert made.size == 30000
