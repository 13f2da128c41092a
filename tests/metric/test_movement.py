"""Which averages "auto" keeps under a solver that needs no gradients of single objectives: by how the weights move."""

import copy

import pytest
import torch
from torch import nn

from helpers import Net, close_params, same, same_params, train
from madamoo import MAdam, PreferenceMetric, solvers
from madamoo.metric._movement import JUMPS, LEAST, Movement


def moved(weights):
    movement = Movement()
    for w in weights:
        movement = movement.after(w, range(len(w)))
    return movement


def test_the_part_that_changes_hands():
    assert moved([[1.0, 3.0]] * 20) == Movement(0.0, 19, {0: 0.25, 1: 0.75})
    assert moved([[1.0, 3.0], [10.0, 30.0]]).average == 0.0, "the size of all weights is no preference"
    half = moved([[1.0, 0.0], [0.0, 1.0], [0.0, -2.0]])
    assert half.average == pytest.approx(0.9 * 0.1) and half.n == 2
    assert moved([[0.0, 0.0]] * 9).average == 0.0


def test_jumps_are_remembered_and_need_some_steps():
    swap = [[1.0, 0.0], [0.0, 1.0]] * 10
    assert not moved(swap[:LEAST]).jumps and moved(swap[: LEAST + 1]).jumps
    assert moved([*swap, *[[1.0, 1.0]] * 500]).jumps
    step = JUMPS * 0.9
    drift = [[0.5 - step * (k % 2), 0.5 + step * (k % 2)] for k in range(50)]
    assert not moved(drift).jumps


def test_a_batch_of_other_objectives_says_nothing():
    movement = moved([[0.2, 0.8]] * 10)
    other = movement.after([1.0, 0.0], [0]).after([0.2, 0.8], [0, 1])
    assert other.average == movement.average and other.n == movement.n


def train_with(solver, steps, estimator="auto", **options):
    net = Net()
    opt = MAdam(net.parameters(), lr=1e-2, solver=solver, metric=PreferenceMetric(estimator, rampup=3, **options))
    train(net, opt, steps)
    return net, opt


@pytest.mark.parametrize(
    "solver, used",
    [
        ("uw", "marginal"),
        ("dwa", "marginal"),
        ("rlw", "full"),
        ("preference", "full"),
        ("mgda", "full"),
        ("ls", "collapsed"),
    ],
)
def test_rows_are_paid_for_where_the_weights_jump(solver, used):
    assert train_with(solver, 12)[1].metric.used == used
    turned = {"full": "separable"}.get(used, used)
    assert train_with(solver, 12, basis="eigen")[1].metric.used == turned


def test_drifting_weights_are_the_marginal_average():
    assert same_params(train_with("uw", 12)[0], train_with("uw", 12, "marginal")[0])


def test_the_averages_start_again_at_the_first_jump():
    """From then on they are those of a metric that was made there; the ramp-up goes on."""
    param, twin = (nn.Parameter(torch.zeros(4, dtype=torch.float64)) for _ in range(2))
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(30, 2, 4, generator=generator, dtype=torch.float64)
    weights = torch.rand(30, 2, generator=generator, dtype=torch.float64)
    late = None
    opt = MAdam([param], lr=0.0, solver=solvers.Preference(), metric=PreferenceMetric(rampup=0))
    for g, w in zip(rows, weights, strict=True):
        jumps = opt.metric.movement.jumps
        opt.backward([g_i @ param for g_i in g], preference=w)
        if jumps:
            metric = PreferenceMetric("full", rampup=0, normalise=True)
            late = late or MAdam([twin], lr=0.0, solver=solvers.Preference(), metric=metric)
            late.backward([g_i @ twin for g_i in g], preference=w)
            torch.testing.assert_close(param.grad, twin.grad)
            late.step()
        opt.step()
    assert late is not None and opt.metric.used == "full"


@pytest.mark.parametrize("at", [3, LEAST, LEAST + 1, 9])
def test_a_run_resumes_before_and_after_the_change(at):
    net, opt = train_with("rlw", at)
    other = copy.deepcopy(net)
    again = MAdam(other.parameters(), lr=1e-2, solver="rlw", metric=PreferenceMetric(rampup=3))
    again.load_state_dict(copy.deepcopy(opt.state_dict()))
    train(net, opt, 6, start=at)
    train(other, again, 6, start=at)
    assert same_params(net, other) and same(opt.state_dict(), again.state_dict())


def test_micro_batches_are_one_batch():
    one, two = Net(), Net()
    for net, parts in ((one, 1), (two, 2)):
        opt = MAdam(net.parameters(), lr=1e-2, solver="rlw", metric=PreferenceMetric(rampup=3))
        train(net, opt, 10, parts=parts)
    close_params(one, two, rtol=1e-7, atol=1e-10)
