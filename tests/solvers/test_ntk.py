"""NTK's weights against kernels written out; the traces themselves are tested with the problems that have them."""

import copy

import numpy as np
import pytest
import torch

from madamoo import MAdam, MultiObjective
from madamoo.solvers import NTK, NTKPinnacle
from madamoo.testing import ordinary_steps


def systems(seed):
    rng = np.random.default_rng(seed)
    return {
        name: rng.normal(size=(n, 6)) * s for name, n, s in [("pde_u", 9, 20.0), ("ends", 5, 1.0), ("start", 4, 0.1)]
    }


def losses(w, by_name):
    return {name: (torch.from_numpy(A) @ w - 1.0).square().mean() for name, A in by_name.items()}


def test_weights_are_the_ratios_of_the_kernels_traces():
    for seed in range(3):
        by_name = systems(seed)
        traces = {name: np.trace(A @ A.T) for name, A in by_name.items()}
        w = torch.nn.Parameter(torch.zeros(6, dtype=torch.float64))
        opt = MultiObjective(torch.optim.SGD([w], lr=1e-3), NTK())
        opt.solver.observe_traces(traces)
        opt.backward(losses(w, by_name))
        for name, weight in opt.weights_by_name.items():
            assert weight == pytest.approx(sum(traces.values()) / traces[name])
        # The weighted kernels all have the same trace: that is what the method is for.
        whole = {name: opt.weights_by_name[name] * trace for name, trace in traces.items()}
        np.testing.assert_allclose(list(whole.values()), sum(traces.values()))


def test_pinnacle_has_two_blocks():
    solver = NTKPinnacle()
    solver.observe_traces({"pde_u": 4.0, "ends": 1.0, "pde_v": 4.0, "start": 1.0})
    assert solver.solve(torch.ones(4)).tolist() == [1.25, 5.0, 1.25, 5.0]
    assert solver.wants_traces  # in every step, as there


def test_traces_are_asked_for_at_the_interval_and_are_part_of_the_state():
    by_name = systems(0)
    w = torch.nn.Parameter(torch.zeros(6, dtype=torch.float64))
    opt, wanted = MAdam([w], solver=NTK(every=3)), []
    for step in range(7):
        wanted.append(opt.solver.wants_traces)
        if wanted[-1]:
            opt.solver.observe_traces({"pde_u": 1.0 + step, "ends": 1.0, "start": 1.0})
        if step == 4:
            w2 = torch.nn.Parameter(w.detach().clone())
            again = MAdam([w2], solver=NTK(every=3))
            again.load_state_dict(copy.deepcopy(opt.state_dict()))
        for params, one in ((w, opt), (w2, again)) if step >= 4 else ((w, opt),):
            one.zero_grad()
            if one is not opt and wanted[-1]:
                one.solver.observe_traces({"pde_u": 1.0 + step, "ends": 1.0, "start": 1.0})
            one.backward(losses(params, by_name))
            one.step()
    assert wanted == [True, False, False, True, False, False, True]
    assert torch.equal(w, w2) and opt.weights.tolist() == again.weights.tolist() == [pytest.approx(9 / 7), 9.0, 9.0]


def test_without_traces_all_weights_are_one_with_a_warning():
    with pytest.warns(RuntimeWarning, match="NTK has been given no traces, so its weights are 1"):
        assert NTK().solve(torch.ones(3)).tolist() == [1.0, 1.0, 1.0]


def test_a_batch_that_lacks_an_objective_shares_out_the_rest():
    solver = NTK()
    solver.observe_traces([1.0, 2.0, 5.0])
    assert ordinary_steps(3, 1)[0].solve(solver, [0, 2]).tolist() == [6.0, 0.0, 1.2]


def test_an_objective_of_trace_zero_keeps_weight_one():
    solver = NTK()
    solver.observe_traces([0.0, 2.0, 6.0])
    assert solver.solve(torch.ones(3, dtype=torch.float64)).tolist() == [1.0, 4.0, pytest.approx(8 / 6)]


def test_errors_name_what_was_found():
    solver = NTK()
    with pytest.raises(ValueError, match="traces must not be negative"):
        solver.observe_traces([1.0, -1.0])
    with pytest.raises(ValueError, match="traces must be finite"):
        solver.observe_traces([1.0, float("nan")])
    solver.observe_traces({"a": 1.0, "b": 2.0})
    with pytest.raises(ValueError, match="traces must be of the objectives a, b, got a, c"):
        solver.observe_traces({"a": 1.0, "c": 2.0})
