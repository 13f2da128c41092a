"""Losses in any form give the same objectives; what cannot be used is refused by name."""

import math

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from madamoo.gradients import check_names, read_losses


def test_every_form(forms, problem, opaque):
    _, make = problem
    for form, made in forms.items():
        losses = make()
        batch = read_losses(made(losses))
        assert batch.present == (0, 1, 2)
        assert batch.values.dtype == torch.float64 and not batch.values.requires_grad
        assert torch.equal(batch.values, torch.stack([loss.detach() for loss in losses]))
        assert batch.names == (("task 0", "task 1", "task 2") if form == "dict" else None)
        assert [batch.label(1), batch.is_opaque()] == ["'task 1'" if form == "dict" else "1", form in opaque]


def test_one_loss_is_never_opaque(problem):
    _, make = problem
    for losses in (make()[0], make()[0].reshape(1), [make()[0]], {"a": make()[0]}):
        batch = read_losses(losses)
        assert batch.present == (0,) and not batch.is_opaque()


def test_a_constant_on_the_way_is_no_common_source(problem):
    _, make = problem
    half = torch.tensor(0.5, dtype=torch.float64)
    assert not read_losses([loss * half for loss in make()]).is_opaque()
    parameter = torch.tensor(2.0, requires_grad=True)
    assert not read_losses([parameter * 1.0, parameter * 2.0]).is_opaque()


def test_a_compiled_region_is_opaque(problem):
    _, make = problem
    trunk = torch.compile(lambda: make()[0] + make()[1], backend="aot_eager")
    hidden = trunk()
    assert read_losses([hidden * 2.0, hidden.square() + make()[2]]).is_opaque()


def test_a_reentrant_checkpoint_is_refused(problem):
    _, make = problem
    x = torch.ones(3, requires_grad=True)
    hidden = checkpoint(torch.tanh, x, use_reentrant=True).sum()
    for losses, extra in (([hidden, make()[0]], None), ([make()[0]], hidden)):
        with pytest.raises(RuntimeError, match="use_reentrant=False"):
            read_losses(losses, extra=extra).is_opaque()
    read_losses([checkpoint(torch.tanh, x, use_reentrant=False).sum()]).is_opaque()


def test_missing_objectives(problem):
    _, make = problem
    a, _, c = make()
    for losses, names in [([a, None, c], None), ({"a": a, "b": None, "c": c}, None), ({"c": c, "a": a}, tuple("abc"))]:
        batch = read_losses(losses, names)
        assert batch.present == (0, 2)
        assert batch.values[[0, 2]].tolist() == [a.item(), c.item()] and math.isnan(batch.values[1])
        assert batch.roots[1] is None and batch.units[1] is None


def test_a_dictionary_is_read_by_name_not_by_order(problem):
    _, make = problem
    a, b, c = make()
    first = read_losses({"a": a, "b": b, "c": c})
    again = read_losses({"c": c, "b": b, "a": a}, first.names)
    assert again.names == first.names == ("a", "b", "c")
    assert torch.equal(again.values, first.values) and again.roots == first.roots


def test_losses_of_different_precision():
    batch = read_losses([scalar(), scalar(dtype=torch.float64), None])
    assert batch.values[:2].tolist() == [2.0, 2.0] and batch.values.dtype == torch.float64
    vector = torch.ones(3, dtype=torch.float64)
    for dtype, wanted in [(torch.bfloat16, torch.float32), (torch.float32,) * 2, (torch.float64,) * 2]:
        assert read_losses([None, scalar(dtype=dtype)]).like_losses(vector).dtype == wanted


def test_losses_without_a_graph_will_do_to_be_looked_at():
    assert read_losses([torch.ones(()), None], graph=False).values[0] == 1.0


def scalar(**options):
    return torch.ones((), requires_grad=True, **options) * 2


BAD = [
    (lambda: 3.0, TypeError, "losses must be a 1-D tensor, a sequence or a dict.*float"),
    (lambda: "loss", TypeError, "losses must be.*str"),
    (lambda: {1: scalar()}, TypeError, "named by strings, got 1"),
    (lambda: [scalar(), 1.0], TypeError, "loss 1 must be a tensor, got float"),
    (lambda: {"a": scalar(), "b": 1.0}, TypeError, "loss 'b' must be a tensor, got float"),
    (lambda: [scalar(), scalar().expand(2)], ValueError, r"loss 1 must be a scalar, got shape \(2,\)"),
    (lambda: scalar().expand(2, 2), ValueError, r"1-D tensor.*got shape \(2, 2\)"),
    (lambda: [scalar(), torch.ones(())], ValueError, "loss 1 has no graph"),
    (lambda: torch.stack([scalar(), torch.ones(())]), ValueError, "loss 1 has no graph"),
    (lambda: torch.ones(2), ValueError, "losses has no graph"),
    (lambda: [scalar(), torch.ones((), dtype=torch.long)], TypeError, "loss 1 must be a real.*int64"),
    (lambda: scalar(dtype=torch.complex64), TypeError, "real floating-point.*complex64"),
    (lambda: [], ValueError, "at least one objective"),
    (lambda: {}, ValueError, "at least one objective"),
    (lambda: [None, None], ValueError, "at least one objective"),
    (lambda: scalar().expand(0), ValueError, "at least one objective"),
]


def test_what_is_no_loss_is_refused():
    for make, error, message in BAD:
        with pytest.raises(error, match=message):
            read_losses(make())


def test_what_does_not_fit_earlier_batches_is_refused():
    losses = [scalar(), scalar()]
    with pytest.raises(ValueError, match=r"3 objectives, as before, got 2.*None"):
        read_losses(losses, count=3)
    with pytest.raises(TypeError, match=r"dict with the names \['a', 'b'\]"):
        read_losses(losses, names=("a", "b"))
    with pytest.raises(TypeError, match="without names, as before"):
        read_losses({"a": scalar(), "b": scalar()}, count=2)
    with pytest.raises(ValueError, match=r"unknown objective\(s\) \['c'\]; known are \['a', 'b'\]"):
        read_losses({"a": scalar(), "c": scalar()}, names=("a", "b"))
    with pytest.raises(ValueError, match="'a' twice"):
        check_names(["a", "b", "a"])


def test_an_extra_term_is_a_scalar_with_a_graph():
    assert read_losses([scalar()], extra=(term := scalar())).extra is term
    for extra, error in [(1.0, TypeError), (scalar().expand(2), TypeError), (torch.ones(()), ValueError)]:
        with pytest.raises(error, match="extra"):
            read_losses([scalar()], extra=extra)


def test_losses_that_a_scaler_has_scaled_are_seen():
    """Every loss ends in a product with one and the same tensor, a power of two from 16 on."""
    scale = torch.tensor(1024.0)
    assert read_losses([scalar() * scale, scalar().exp() * scale]).scaled_by() == 1024.0
    assert read_losses([scalar() * torch.tensor(16.0)]).scaled_by() == 16.0
    for losses in (
        [scalar() * scale, scalar().exp()],
        [scalar() * scale, scalar() * scale.clone()],
        [scalar() * torch.tensor(8.0)],
        [scalar() * torch.tensor(1000.0)],
        [scalar() * 1024.0],
        [scalar() * torch.tensor(1024.0, requires_grad=True)],
        [(scalar().expand(1) * torch.full((1,), 1024.0))],
        [scalar()],
    ):
        assert read_losses(losses).scaled_by() is None
