"""Losses in any form give the same objectives; what cannot be used is refused by name."""

import math

import pytest
import torch

from madamoo.gradients import check_names, compute_rows, drop_zero_rows, read_losses, unpack

FORMS = ["sequence", "tuple", "dict", "shape [1]", "stack", "dense", "cat"]
DENSE = ["dense", "cat"]


@pytest.mark.parametrize("form", FORMS)
def test_every_form(form, forms, problem):
    _, make = problem
    losses = make()
    batch = read_losses(forms[form](losses))
    assert batch.present == (0, 1, 2)
    assert batch.values.dtype == torch.float64 and not batch.values.requires_grad
    assert torch.equal(batch.values, torch.stack([loss.detach().double() for loss in losses]))
    assert batch.names == (("task 0", "task 1", "task 2") if form == "dict" else None)


@pytest.mark.parametrize("form", FORMS)
def test_only_one_tensor_for_all_losses_is_opaque(form, forms, problem):
    _, make = problem
    assert read_losses(forms[form](make())).is_opaque() == (form in DENSE)


def test_one_loss_is_never_opaque(problem):
    params, make = problem
    for losses in (make()[0], make()[0].reshape(1), [make()[0]], {"a": make()[0]}):
        batch = read_losses(losses)
        assert batch.present == (0,) and not batch.is_opaque()
        (rows, *_) = compute_rows(batch, params, {0: {0: 1.0}})
        assert rows.keys == (0,) and rows.params == tuple(params[:2])


def test_a_compiled_region_is_opaque(problem):
    params, make = problem
    compiled = torch.compile(lambda: tuple(make()), backend="aot_eager")
    batch = read_losses(compiled())
    assert batch.is_opaque()
    rows = unpack(drop_zero_rows(compute_rows(batch, params, {i: {i: 1.0} for i in range(3)}), {}))
    assert [set(rows.get(p, ())) for p in params] == [{0, 1, 2}, {0}, {1}, {2}, set()]


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


@pytest.mark.parametrize("make, error, message", BAD)
def test_what_is_no_loss_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        read_losses(make())


def test_what_does_not_fit_earlier_batches_is_refused():
    losses = [scalar(), scalar()]
    with pytest.raises(ValueError, match=r"3 objectives, as before, got 2.*None"):
        read_losses(losses, count=3)
    with pytest.raises(TypeError, match=r"dict with the names \['a', 'b'\]"):
        read_losses(losses, names=("a", "b"))
    with pytest.raises(ValueError, match=r"unknown objective\(s\) \['c'\]; known are \['a', 'b'\]"):
        read_losses({"a": scalar(), "c": scalar()}, names=("a", "b"))
    with pytest.raises(ValueError, match="'a' twice"):
        check_names(["a", "b", "a"])
