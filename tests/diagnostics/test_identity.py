"""Training is the same with a probe and without, bit for bit, whatever is around it."""

import copy
import pickle

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from helpers import Net, adam, backward, inf_loss, same, same_params, snapshot, train, wrap
from madamoo import MultiObjective, PreferenceMetric, diagnostics, solvers
from optimizer.cover import COVER, sgd

CASES = [("ls", None), ("ls", "collapsed"), ("rlw", "pair"), ("cagrad", "full")]
cases = pytest.mark.parametrize("solver, estimator", CASES)


def pair(solver, estimator, make=Net, **options):
    """A net and its optimizer, twice; the second with probes."""
    nets = [make(), make()]
    opts = [wrap(net, solver, estimator, **options) for net in nets]
    shadow = PreferenceMetric("pair") if estimator is None else None
    probes = [
        diagnostics.attach(opts[1], every=2, exact=True, shadow=shadow),
        diagnostics.attach(opts[1], every=3),
    ]
    return nets, opts, probes


def check(nets, opts):
    assert same(snapshot(nets[0], opts[0]), snapshot(nets[1], opts[1]))
    assert same([p.grad for p in nets[0].parameters()], [p.grad for p in nets[1].parameters()])


@pytest.mark.parametrize("solver, estimator", COVER)
def test_with_and_without(solver, estimator):
    nets, opts, probes = pair(solver, estimator)
    generators = []
    for net, opt in zip(nets, opts, strict=True):
        torch.manual_seed(5)
        train(net, opt, 5)
        generators.append(torch.get_rng_state())
    check(nets, opts)
    assert same(*generators)
    assert [r["step"] for r in probes[0].rows] == [0, 2, 4] and [r["step"] for r in probes[1].rows] == [0, 3]


@cases
def test_micro_batches(solver, estimator):
    nets, opts, probes = pair(solver, estimator)
    for net, opt in zip(nets, opts, strict=True):
        train(net, opt, 5, parts=4)
    check(nets, opts)
    assert len(probes[0].rows) == 3


@cases
def test_a_closure(solver, estimator):
    nets, opts, probes = pair(solver, estimator)
    for net, opt in zip(nets, opts, strict=True):
        for t in range(5):

            def closure(net=net, opt=opt, t=t):
                opt.zero_grad()
                backward(net, opt, t)

            opt.step(closure)
    check(nets, opts)
    assert len(probes[0].rows) == 3


@cases
def test_a_scaler_that_skips_some_steps(solver, estimator):
    nets, opts, probes = pair(solver, estimator, inner=sgd)
    for net, opt in zip(nets, opts, strict=True):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
        for t in range(7):
            losses = net.losses(t)
            opt.zero_grad()
            opt.backward(inf_loss(losses) if t in (0, 3) else losses, scaler=scaler)
            scaler.step(opt)
            scaler.update()
    check(nets, opts)
    assert [r["step"] for r in probes[0].rows] == [0, 2, 4]
    assert [r["losses"]["0"] is not None for r in probes[0].rows] == [True] * 3


def test_a_scaled_row_is_the_row():
    rows = []
    for scaler in (None, torch.amp.GradScaler("cpu", init_scale=2.0**12)):
        net = Net()
        opt = wrap(net, "ls", "collapsed", inner=sgd)
        with diagnostics.attach(opt, every=2, exact=True) as probe:
            for t in range(3):
                opt.zero_grad()
                opt.backward(net.losses(t), scaler=scaler)
                opt.step() if scaler is None else scaler.step(opt)
                if scaler is not None:
                    scaler.update()
        rows.append([{k: v for k, v in r.items() if k != "seconds"} for r in probe.rows])
    assert same(*rows)


class Dropping(Net):
    """Draws at random in the forward pass, and again in each backward pass."""

    def forward(self, x):
        h = checkpoint(
            lambda x: torch.dropout(self.trunk(x), 0.5, True),
            x.requires_grad_(),
            use_reentrant=False,
            preserve_rng_state=False,
        )
        return [head(h)[:, 0] for head in self.heads]


@cases
def test_dropout_in_a_checkpoint(solver, estimator):
    nets, opts, probes = pair(solver, estimator, Dropping)
    generators = []
    for net, opt in zip(nets, opts, strict=True):
        torch.manual_seed(5)
        train(net, opt, 5)
        generators.append(torch.get_rng_state())
    check(nets, opts)
    assert same(*generators) and len(probes[0].rows) == 3


class Rotated(Net):
    def __init__(self, solver):
        super().__init__()
        self.solver = [solver]

    def forward(self, x):
        turned = self.solver[0].rotate(self.trunk(x))
        return [head(h)[:, 0] for head, h in zip(self.heads, turned, strict=True)]


def test_a_solver_that_listens_to_the_backward_pass():
    """RotoGrad gathers gradients of features by hooks: a pass more would be a gradient more."""
    nets, opts = [], []
    for probed in (False, True):
        solver = solvers.RotoGrad(3)
        nets.append(Rotated(solver))
        opts.append(MultiObjective(adam(nets[-1]), solver, PreferenceMetric("full")))
        if probed:
            probe = diagnostics.attach(opts[-1], every=2)
        train(nets[-1], opts[-1], 5)
    check(nets, opts)
    assert len(probe.rows) == 3


@cases
def test_state_dict_and_checkpoints_know_nothing_of_probes(solver, estimator):
    nets, opts, _ = pair(solver, estimator)
    for net, opt in zip(nets, opts, strict=True):
        train(net, opt, 3)
    assert same(opts[0].state_dict(), opts[1].state_dict())
    opts[1].load_state_dict(copy.deepcopy(opts[0].state_dict()))
    for net, opt in zip(nets, opts, strict=True):
        train(net, opt, 2, start=3)
    check(nets, opts)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("solver, estimator", [("rlw", "pair"), ("cagrad", "full")])
def test_a_copy_has_no_probe_and_goes_on_as_the_original(solver, estimator, clone):
    nets, opts, probes = pair(solver, estimator)
    net, opt = nets[1], opts[1]
    probes[0].sinks.append(lambda row: None)  # cannot be pickled
    train(net, opt, 3)
    opt.zero_grad()
    backward(net, opt, 9)  # a step in the making, which a copy leaves behind
    net_copy, opt_copy = clone((net, opt))
    opt.zero_grad()
    assert opt_copy.run.probes == () and len(opt.run.probes) == 2
    train(net, opt, 3, start=3)
    count = len(probes[0].rows)
    train(net_copy, opt_copy, 3, start=3)
    assert len(probes[0].rows) == count
    assert same(snapshot(net, opt), snapshot(net_copy, opt_copy))


@cases
def test_an_extra_term(solver, estimator):
    nets, opts, probes = pair(solver, estimator)
    for net, opt in zip(nets, opts, strict=True):
        for t in range(5):
            opt.zero_grad()
            opt.backward(net.losses(t), extra=sum(p.square().sum() for p in net.parameters()))
            opt.step()
    check(nets, opts)
    assert len(probes[0].rows) == 3


def test_bfloat16_parameters():
    nets, opts, probes = pair("uw", "full", lambda: Net(dtype=torch.bfloat16))
    for net, opt in zip(nets, opts, strict=True):
        train(net, opt, 5)
    check(nets, opts)
    assert all(row["effects"]["adam"]["0"] is not None for row in probes[0].rows)


def test_a_model_that_is_compiled_after_the_probe_was_attached():
    nets = [Net(dtype=torch.float32), Net(dtype=torch.float32)]
    opts = [wrap(net, "ls") for net in nets]
    probe = diagnostics.attach(opts[1], every=2)
    for net, opt in zip(nets, opts, strict=True):
        net.trunk = torch.compile(net.trunk, backend="aot_eager")
        train(net, opt, 4)
    assert same_params(*nets)
    assert len(probe.rows) == 2
