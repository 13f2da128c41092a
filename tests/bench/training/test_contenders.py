from dataclasses import replace

import pytest
import torch
from torch import nn

from madamoo import MSOAP, MultiObjective, PreferenceMetric, solvers
from madamoo.bench.problems import build_model
from madamoo.bench.problems.supervised.digits import Digits
from madamoo.bench.problems.supervised.sarcos import SarcosSmall
from madamoo.bench.training._contenders import (
    OPTIMIZERS,
    available_solvers,
    build_optimizer,
    build_solver,
    hidden_matrices,
    is_static,
)
from madamoo.metric import EigenBasis
from madamoo.optimizer import Chain
from madamoo.relatives import SOAP


def optimizer(spec, solver="ls", total_steps=10, lr=0.1):
    params = [torch.ones(2, requires_grad=True), torch.ones(2, 2, requires_grad=True)]
    built = build_optimizer(
        spec,
        params,
        hidden=params[1:],
        lr=lr,
        solver=build_solver(solver, Digits(), 0),
        seed=0,
        total_steps=total_steps,
    )
    return built, params


SPECS = [*OPTIMIZERS, *(f"{name}:inner={inner}" for name in ("madam", "marginal") for inner in ("sgd", "soap", "muon"))]


def test_each_optimizer_steps_at_its_rate_without_weight_decay():
    for name in SPECS:
        built, params = optimizer(name)
        assert {group["lr"] for group in built.param_groups} == {0.1}, name
        vector, matrix = params
        for _ in range(3):  # the second entry of each is in no loss
            built.zero_grad()
            built.backward(torch.stack([vector[0] * 3 + matrix[0, 0], vector[0] * 5 + matrix[0, 0] * 2]))
            built.step()
        assert vector[0] < 1 and vector[1] == 1, name
        assert matrix[0, 0] < 1 and matrix[1, 1].item() == pytest.approx(1, abs=1e-6), name


def test_baseline_is_adam_on_the_solvers_direction():
    """With constant weights: torch's own Adam on the mean of the losses."""
    assert optimizer("madam:beta1=0")[0].param_groups[0]["betas"] == (0.0, 0.999)
    built, params = optimizer("adam:beta1=0.8:beta2=0.99")
    assert isinstance(built, MultiObjective)
    plain = torch.ones(2, requires_grad=True)
    adam = torch.optim.Adam([plain], lr=0.1, betas=(0.8, 0.99))
    for k in range(5):
        for parameter, step in ((params[0], built), (plain, adam)):
            losses = torch.stack([((parameter - k) ** 2).sum(), (3 * parameter[0] - 1).square()])
            step.zero_grad()
            step.backward(losses) if step is built else losses.mean().backward()
            step.step()
    torch.testing.assert_close(params[0], plain)


def test_options_of_madam_and_of_the_control_arrive():
    built, _ = optimizer("madam:rampup=7:estimator=pair:beta2=0.9")
    assert built.metric.estimator == "pair" and built.param_groups[0]["betas"] == (0.9, 0.9)
    assert optimizer("marginal:rampup=7")[0].metric.estimator == "marginal"


def test_the_papers_form_has_a_name_of_its_own():
    built, _ = optimizer("madam-paper:rampup=7:beta=0.9")
    assert built.metric.options() == PreferenceMetric.paper(rampup=7, beta=0.9).options()
    assert optimizer("madam-paper")[0].metric.options() == PreferenceMetric.paper().options()


def test_msoap_has_its_momentum_before_the_metric_alone():
    for spec, options in (
        ("msoap:estimator=full", {"estimator": "full"}),
        ("msoap:momentum=0.9", {"betas": (0.9, 0.95)}),
    ):
        built, params = optimizer(spec)
        assert isinstance(built.optimizer, torch.optim.SGD) and built.defaults["momentum"] == 0.0
        assert built.metric.options() == MSOAP(params, **options).metric.options()


def test_msoap_in_the_lab_is_the_ready_made_one_under_every_solver():
    for solver in ("ls", "rlw", "preference", "cosmos"):
        built, params = optimizer("msoap", solver)
        assert built.metric.options() == MSOAP(params, solver=solver).metric.options()
    assert optimizer("msoap:estimator=full", "preference")[0].metric.estimator == "full"


def test_a_basis_can_have_one_side():
    one = EigenBasis(sides="shorter")
    assert optimizer("msoap:sides=shorter")[0].metric.basis == one
    assert optimizer("madam:basis=eigen:sides=shorter:longest=9")[0].metric.basis == replace(one, longest=9)
    for wrong, said in (("madam:sides=shorter", "with basis=eigen only"), ("msoap:sides=left", "sides must be")):
        with pytest.raises(ValueError, match=said):
            optimizer(wrong)


def test_options_find_the_metric_or_the_inner_optimizer():
    """What both know is the metric's."""
    built, _ = optimizer("madam:inner=soap:refresh=3:beta2=0.9:eps=1e-12:rampup=7")
    inner = built.optimizer
    assert isinstance(inner, SOAP) and inner.defaults["refresh"] == 3 and inner.defaults["betas"] == (0.95, 0.9)
    assert inner.defaults["eps"] == 1e-8 and built.metric.eps == 1e-12 and built.metric.rampup == 7
    assert optimizer("soap:eps=1e-12")[0].defaults["eps"] == 1e-12 and optimizer("soap")[0].metric is None
    assert optimizer("madam:inner=sgd:momentum=0.95")[0].defaults["momentum"] == 0.95
    assert optimizer("sgd")[0].defaults["momentum"] == 0.9
    assert isinstance(optimizer("madam:inner=adam")[0].metric, PreferenceMetric)
    assert optimizer("mtadam:beta1=0.5")[0].param_groups[0]["betas"] == (0.5, 0.999)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has Muon since 2.9")
def test_muon_moves_hidden_matrices_and_adam_the_rest():
    built, (vector, matrix) = optimizer("muon:beta2=0.99:momentum=0.8")
    muon, adam = built.optimizer.optimizers
    assert isinstance(built.optimizer, Chain) and isinstance(muon, torch.optim.Muon)
    assert muon.param_groups[0]["params"] == [matrix] and adam.param_groups[0]["params"] == [vector]
    assert adam.defaults["betas"] == (0.9, 0.99) and muon.defaults["momentum"] == 0.8
    assert muon.defaults["adjust_lr_fn"] == "match_rms_adamw" and muon.defaults["weight_decay"] == 0.0
    groups = [{"params": [vector, matrix], "lr": 0.5}, {"params": [torch.ones(3, requires_grad=True)]}]
    several = build_optimizer("muon", groups, hidden=[matrix], lr=0.1, solver=solvers.LS(), seed=0, total_steps=1)
    assert [(g["lr"], len(g["params"])) for g in several.param_groups] == [(0.5, 1), (0.5, 1), (0.1, 1)]
    with pytest.raises(ValueError, match="muon is for hidden matrices, and the model has none"):
        build_optimizer("muon", [vector], lr=0.1, solver=solvers.LS(), seed=0, total_steps=1)


def test_hidden_matrices_are_neither_first_nor_last():
    mlp = build_model("mlp:depth=3:width=8", (5,), (2, 3))
    assert [tuple(p.shape) for p in hidden_matrices(mlp)] == [(8, 8), (8, 8)]
    lenet = build_model("lenet:width=6", (1, 28, 28), (10, 10))
    assert [tuple(p.shape) for p in hidden_matrices(lenet)] == [(6, 320), (6, 6), (6, 6)]
    fnn = build_model("fnn:depth=3:width=7", (2,), (1,))
    assert [tuple(p.shape) for p in hidden_matrices(fnn)] == [(7, 7), (7, 7)]
    assert hidden_matrices(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))) == []


@pytest.mark.parametrize(
    "spec, said",
    [
        ("adam:inner=soap", "adam has no option 'inner'; it has beta1, beta2, eps"),
        ("madam:inner=lion", "inner must be one of adam, sgd, soap, plain, muon, got 'lion'"),
        ("madam:refresh=3", "madam has no option 'refresh'; it has estimator"),
        ("sgd:beta1=0.5", "sgd has no option 'beta1'; it has momentum"),
        ("soap:refresh=often", "refresh must be a number, got 'often'"),
        ("soap:refresh=0", "refresh must be an integer, at least 1, got 0"),
        ("marginal:estimator=full", "marginal has no option 'estimator'"),
        ("madam-paper:floor=True", "madam-paper has no option 'floor'; it has beta, rampup"),
        ("muon:beta1=True", "beta1 must be a number, got True"),
        ("adatask:inner=soap", "adatask has no option 'inner'"),
    ],
)
def test_what_nobody_knows_is_refused(spec, said):
    with pytest.raises(ValueError, match=said):
        optimizer(spec)


def test_each_solver_can_be_built_and_used():
    for name in available_solvers():
        built, params = optimizer("adam", name)
        losses = torch.stack([((params[0] - 2) ** 2).sum(), ((params[0] + 1) ** 2).sum()])
        built.zero_grad()
        built.backward(losses)
        built.step()
        assert torch.isfinite(params[0]).all(), name


def test_uncertainty_weighting_gets_the_kinds():
    assert list(build_solver("uw", Digits(), 0).kinds) == ["classification"] * 2
    assert list(build_solver("uw", SarcosSmall(), 0).kinds) == ["regression"] * 7


def test_restless_preferences_follow_the_seed_and_move():
    def weights(seed):
        solver = build_solver("restless", Digits(), seed)
        return [solver.solve(torch.ones(2)).tolist() for _ in range(3)]

    assert weights(0) == weights(0) != weights(1)
    assert len({tuple(w) for w in weights(0)}) == 3
    assert not is_static("restless") and is_static("ls") and not is_static("uw") and not is_static("cagrad:c=0.2")
