"""What the backward passes find is what torch gives for each loss alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import Net
from madamoo.gradients import (
    Found,
    Layout,
    add_found,
    allow_several_backward_passes,
    differentiate,
    read_losses,
    unpack,
)

EACH = (0, 1, 2)


def alone(params, loss):
    """What torch gives for one loss."""
    return list(torch.autograd.grad(loss, params, retain_graph=True, allow_unused=True))


def same(found, wanted):
    assert [g is None for g in found] == [g is None for g in wanted]
    torch.testing.assert_close([g for g in found if g is not None], [g for g in wanted if g is not None])


def test_one_row_per_objective(forms, problem, opaque):
    params, make = problem
    for form, made in forms.items():
        losses = make()
        wanted = [alone(params, loss) for loss in losses]
        found = differentiate(read_losses(made(losses)), params, EACH)
        assert tuple(found.rows) == EACH and found.rest is None and found.reached() == {*EACH}
        if form in opaque:  # zeros where the objective does not reach
            for row in found.rows.values():
                assert [g is None for g in row] == [False] * 4 + [True]
            found = found.drop_zeros(params, {}, EACH, missing=False)
        for i in EACH:
            same(found.rows[i], wanted[i])


def test_behind_a_compiled_region(problem):
    params, make = problem
    allow_several_backward_passes()
    losses = torch.compile(lambda: tuple(make()), backend="aot_eager")()
    wanted = [alone(params, loss) for loss in make()]
    found = differentiate(read_losses(losses), params, EACH).drop_zeros(params, {}, EACH, missing=False)
    for i in EACH:
        same(found.rows[i], wanted[i])


def test_the_rest_is_the_weighted_sum(forms, problem):
    params, make = problem
    for scale in (1.0, 2.0**16):
        for made in forms.values():
            losses, penalty = make(), params[0].square().sum() + params[4].sum()
            total = 0.25 * losses[0] - 3.0 * losses[2] + penalty
            wanted, one = alone(params, total), alone(params, losses[1])
            batch = read_losses(made(losses), extra=penalty)
            found = differentiate(batch, params, (1,), {0: 0.25, 2: -3.0}, scale=scale)
            assert tuple(found.rows) == (1,)
            for p in (0, 1, 3, 4):
                torch.testing.assert_close(found.rest[p], wanted[p])
            torch.testing.assert_close(found.rows[1][0], one[0])


def test_an_extra_term_alone_is_a_rest(problem):
    params, make = problem
    found = differentiate(read_losses(make(), extra=params[4].square().sum()), params, EACH, scale=4.0)
    assert [g is None for g in found.rest] == [True] * 4 + [False]
    torch.testing.assert_close(found.rest[4], 2 * params[4].detach())


def test_a_coefficient_of_zero_still_reaches(problem):
    params, make = problem
    found = differentiate(read_losses(make()), params, (), {0: 0.0, 1: 1.0})
    assert not found.rows and found.reached() == set()
    assert not found.rest[1].any() and found.rest[3] is None


def test_missing_objectives_have_no_row(problem):
    params, make = problem
    a, _, c = make()
    found = differentiate(read_losses([a, None, c]), params, (0, 2))
    assert [{i for i in found.rows if found.rows[i][p] is not None} for p in range(5)] == [
        {0, 2},
        {0},
        set(),
        {2},
        set(),
    ]


def test_the_same_loss_twice(problem):
    params, make = problem
    loss = make()[0]
    wanted = alone(params, loss)[0]
    for losses in ([loss, loss], torch.stack([loss, loss])):
        found = differentiate(read_losses(losses), params, (0,), {0: 1.0, 1: 2.0}, retain_graph=True)
        torch.testing.assert_close([found.rows[0][0], found.rest[0]], [wanted, 3 * wanted])


def test_parameters_of_different_precision_and_one_that_is_a_loss():
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, dtype=torch.float64, requires_grad=True)
    found = differentiate(read_losses(torch.stack([a.sum() * 2, b.sum() * 3])), [a, b], (0, 1))
    assert found.rows[0][0].tolist() == [2, 2] and found.rows[0][0].dtype == torch.float32
    assert found.rows[1][1].tolist() == [3, 3] and found.rows[1][1].dtype == torch.float64
    a = torch.tensor(2.0, requires_grad=True)
    for losses in ([a, a * a], torch.stack([a, a * a])):
        found = differentiate(read_losses(losses), [a], (0, 1))
        assert [row[0].item() for row in found.rows.values()] == [1.0, 4.0]


def test_the_graph_is_freed_by_the_last_pass_and_grad_left_alone(forms, problem):
    params, make = problem
    for made in forms.values():
        losses = made(make())
        kept = differentiate(read_losses(losses), params, EACH, retain_graph=True)
        again = differentiate(read_losses(losses), params, (0, 1), {2: 1.0})
        assert torch.equal(kept.rows[0][0], again.rows[0][0])
        with pytest.raises(RuntimeError, match="second time"):
            differentiate(read_losses(losses), params, EACH)
    assert all(p.grad is None for p in params)


def test_sparse_gradients_are_refused():
    table = torch.nn.Embedding(4, 2, sparse=True)
    with pytest.raises(TypeError, match="sparse=False"):
        differentiate(read_losses([table(torch.tensor([1, 2])).sum()]), [table.weight], (0,))


def test_a_model_compiled_for_one_backward_pass_is_named():
    import torch._functorch.config as config

    torch.compiler.reset()
    net = Net()
    net.compile(backend="aot_eager")
    params = list(net.parameters())
    with config.patch(donated_buffer=True):  # torch's default
        differentiate(read_losses(net.losses(0)[:1]), params, (0,))  # the pass that torch compiles for
        with pytest.raises(RuntimeError, match="Build the optimizer first"):
            differentiate(read_losses(net.losses(0)), params, EACH)
    torch.compiler.reset()


# -- zeros behind an opaque graph --------------------------------------------------------------------------------------


def make_found(rows, rest=None):
    """Numbers for gradients of one entry; None where there is none."""

    def row(values):
        return [None if v is None else torch.tensor([float(v)]) for v in values]

    return Found({i: row(values) for i, values in rows.items()}, None if rest is None else row(rest))


def numbers(found):
    def row(values):
        return [None if g is None else g.item() for g in values]

    return {i: row(values) for i, values in found.rows.items()}, None if found.rest is None else row(found.rest)


def test_zeros_of_objectives_that_reach_stay():
    """Dropped where the objective is alive elsewhere, unless it is known to reach, or dead everywhere."""
    params = [torch.empty(1) for _ in range(3)]
    rows = {0: [1, 0, None], 1: [0, 2, None], 2: [0, 0, None]}
    given = make_found(rows, rest=[0, 3, None])
    found = given.drop_zeros(params, {params[0]: frozenset({1})}, EACH, missing=False)
    wanted = {0: [1, None, None], 1: [0, 2, None], 2: [0, 0, None]}
    assert numbers(found) == (wanted, [None, 3, None])
    assert numbers(given) == (rows, [0, 3, None])  # never in place


def test_where_objectives_are_missing_a_parameter_without_gradient_is_their_head():
    params = [torch.empty(1) for _ in range(2)]
    dead = {0: [0, 0], 1: [0, 0]}
    assert numbers(make_found(dead).drop_zeros(params, {}, (0, 1), missing=False))[0] == dead
    assert numbers(make_found(dead).drop_zeros(params, {}, (0, 1), missing=True))[0] == {0: [None] * 2, 1: [None] * 2}
    known = {params[0]: frozenset({1}), params[1]: frozenset({2})}  # 2 is not in the batch
    assert numbers(make_found(dead).drop_zeros(params, known, (0, 1), missing=True))[0] == {0: [0, None], 1: [0, None]}
    in_rest = make_found({}, rest=[0, 0]).drop_zeros(params, known, (0, 1), missing=True)  # with a weight of zero
    assert numbers(in_rest) == ({}, [0, None])
    alive = {0: [0, 0], 1: [0, 1]}
    assert numbers(make_found(alive).drop_zeros(params, {}, (0, 1), missing=True))[0] == {0: [None, 0], 1: [None, 1]}


# -- sums of micro-batches ---------------------------------------------------------------------------------------------

ROW = st.lists(st.sampled_from([None, 1.0, 2.0]), min_size=2, max_size=2)
FOUND = st.tuples(st.dictionaries(st.integers(0, 3), ROW), st.none() | ROW)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(a=FOUND, b=FOUND)
def test_gradients_add_objective_by_objective(a, b):
    x, y = make_found(*a), make_found(*b)
    rows, rest = numbers(add_found(x, y))

    def plus(first, second):
        pairs = zip(first or [None] * 2, second or [None] * 2, strict=True)
        return [None if u is v is None else (u or 0.0) + (v or 0.0) for u, v in pairs]

    assert list(rows) == sorted({*a[0], *b[0]})
    assert all(rows[i] == plus(a[0].get(i), b[0].get(i)) for i in rows)
    assert (rest is None) == (a[1] is b[1] is None)
    assert rest is None or rest == plus(a[1], b[1])
    assert (numbers(x), numbers(y)) == (a, b)  # never in place


def test_unpack_is_the_inverse_of_pack(problem):
    params, make = problem
    for heads_together in (True, False):
        batch = read_losses(make(), extra=params[0].sum() + params[1].sum())
        found = differentiate(batch, params, (0, 2), {1: 0.5})
        wanted = Found({i: [*row] for i, row in found.rows.items()}, [*found.rest])
        again = unpack(Layout().pack(found, params, heads_together=heads_together)[0], params)
        assert list(again.rows) == [0, 2]
        for i in again.rows:
            same(again.rows[i], wanted.rows[i])
        same(again.rest, wanted.rest)
    assert unpack([], params) == Found({})
