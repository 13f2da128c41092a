"""When a row is made and when not, and the life of a probe."""

import warnings

import pytest
import torch

from helpers import Net, adam, backward, inf_loss, metric, nan_gradient, same_params, train, wrap
from madamoo import MAdam, MultiObjective, PreferenceMetric, diagnostics, solvers
from madamoo.diagnostics._attach import EVERY
from madamoo.optimizer import AdaTask, _step


def steps(probe):
    return [row["step"] for row in probe.rows]


@pytest.mark.parametrize("every", [1, 3, 100])
def test_every_so_many_steps_the_first_included(every):
    net = Net()
    opt = wrap(net, "uw", "full")
    probe = diagnostics.attach(opt, every=every, start=10)
    train(net, opt, 7)
    assert steps(probe) == [10 + t for t in range(0, 7, every)]


@pytest.mark.parametrize(
    "solver, estimator, options, usual, measured",
    [
        ("ls", None, {}, 1, 1 + 5),
        ("ls", "collapsed", {"exact": True}, 1, 1 + 5),
        ("cagrad", "full", {}, 5, 5),  # every objective is differentiated anyway
        ("uw", "full", {}, 5, 5),
        ("uw", None, {"shadow": ("full",)}, 1 + 5, 1 + 5),
        ("ls", None, {"shadow": ("auto",)}, 1, 1 + 5),
    ],
)
def test_only_what_the_optimizer_does_not_compute_is_computed(passes, solver, estimator, options, usual, measured):
    net = Net(5)
    opt = wrap(net, solver, estimator)
    options = {k: PreferenceMetric(*v) if k == "shadow" else v for k, v in options.items()}
    diagnostics.attach(opt, every=4, **options)
    counts = []
    passes()
    for t in range(9):
        train(net, opt, 1, start=t)
        counts.append(passes())
    assert counts == [measured if t % 4 == 0 else usual for t in range(9)]


CLEAR = {
    "opt": lambda net, opt: opt.zero_grad(),
    "opt to zero": lambda net, opt: opt.zero_grad(set_to_none=False),
    "model": lambda net, opt: net.zero_grad(),
    "model to zero": lambda net, opt: net.zero_grad(set_to_none=False),
}


@pytest.mark.parametrize("clear", CLEAR)
def test_a_step_that_is_discarded_leaves_no_row(clear):
    for solver, estimator in (("rlw", "pair"), ("cagrad", "full"), ("ls", None)):
        rows = []
        for discard in (False, True):
            net = Net()
            opt = wrap(net, solver, estimator)
            probe = diagnostics.attach(opt, every=2, exact=True)
            for t in range(5):
                if discard:
                    backward(net, opt, 100 + t, parts=2)
                    CLEAR[clear](net, opt)
                backward(net, opt, t)
                opt.step()
                CLEAR[clear](net, opt)
            rows.append([{k: v for k, v in row.items() if k != "seconds"} for row in probe.rows])
        assert len(rows[0]) == 3
        assert rows[0] == rows[1]


def test_a_step_after_the_gradients_were_cleared_has_no_row():
    for clear in CLEAR.values():
        net = Net()
        opt = wrap(net, "uw", "full")
        probe = diagnostics.attach(opt, every=1)
        train(net, opt, 1)
        backward(net, opt, 1)
        clear(net, opt)
        opt.step()
        assert steps(probe) == [0] and probe.steps == 2


@pytest.mark.filterwarnings("ignore:.*is not finite")
@pytest.mark.parametrize("spoil", [inf_loss, nan_gradient])
@pytest.mark.parametrize("part", [0, 1])
def test_a_step_that_is_refused_leaves_no_row(spoil, part):
    net = Net()
    opt = wrap(net, "uw", "full")
    probe = diagnostics.attach(opt, every=2)
    for t in range(4):
        opt.zero_grad()
        for k in range(2):
            losses = net.losses(t, k, 2)
            opt.backward(spoil(losses) if t == 0 and k == part else losses)
        opt.step()
    assert opt.skipped == 1
    assert steps(probe) == [0, 2]
    assert probe.rows[0]["losses"]["0"] == pytest.approx(float(Net().losses(1)[0].detach()))


def test_a_micro_batch_that_raised_is_not_in_the_row():
    """The first backward stands, the second is refused, the third is the rest of the step."""
    net, control = Net(), Net()
    opt, reference = wrap(net, "smoothtchebycheff"), wrap(control, "smoothtchebycheff")
    probe, other = diagnostics.attach(opt), diagnostics.attach(reference)
    opt.backward(net.losses(0))
    with pytest.raises(ValueError, match="micro-batch"):
        opt.backward(net.losses(1))
    opt.step()
    reference.backward(control.losses(0))
    reference.step()
    assert probe.rows[0]["norms"] == other.rows[0]["norms"]
    assert probe.rows[0]["effects"] == other.rows[0]["effects"]


def test_a_micro_batch_that_is_tried_again_counts_once(monkeypatch):
    """The optimizer's own pass fails because memory is short; the user catches that, and gives the batch once more."""
    nets = [Net(), Net()]
    opts = [wrap(net) for net in nets]
    probes = [diagnostics.attach(opt) for opt in opts]
    for part in range(2):
        for net, opt in zip(nets, opts, strict=True):
            if opt is opts[1] and part == 1:
                with monkeypatch.context() as patch:
                    patch.setattr(_step, "largest_entry", _no_memory)
                    with pytest.raises(MemoryError):
                        opt.backward(net.losses(0, part, 2))
            opt.backward(net.losses(0, part, 2))
    for opt in opts:
        opt.step()
    for key in ("norms", "effects", "losses"):
        assert probes[0].rows[0][key] == probes[1].rows[0][key]


def _no_memory(*_):
    raise MemoryError


def test_micro_batches_from_before_the_probe_are_no_step_of_its_own():
    net = Net()
    opt = wrap(net, "cagrad", "full")
    opt.backward(net.losses(0, 0, 2))
    probe = diagnostics.attach(opt)
    opt.backward(net.losses(0, 1, 2))
    opt.step()
    assert not probe.rows
    train(net, opt, 3, start=1)
    assert steps(probe) == [1]  # as soon as possible


def test_a_step_without_backward_counts_and_has_no_row():
    net = Net()
    opt = wrap(net)
    probe = diagnostics.attach(opt, every=2)
    opt.step()
    train(net, opt, 4)
    assert steps(probe) == [1, 2, 4]


def test_observe_adds_the_change_and_hands_the_row_over():
    net = Net()
    opt = MultiObjective(adam(net), objectives=["a", "b", "c"])
    got = []
    probe = diagnostics.attach(opt, every=2, sinks=got.append)
    for t in range(4):
        before = dict(zip("abc", net.losses(t), strict=True))
        opt.zero_grad()
        opt.backward(before)
        opt.step()
        assert probe.measured == (t % 2 == 0)
        with torch.no_grad():
            after = dict(zip("abc", net.losses(t), strict=True))
        probe.observe(after)
        assert not probe.measured
        assert len(got) == t // 2 + 1
        if t % 2 == 0:
            assert got[-1]["observed"] == {n: float(after[n]) - float(before[n].detach()) for n in "abc"}
    assert [dict(r) for r in probe.rows] == got


def test_rows_wait_for_the_next_step_or_the_end():
    net = Net()
    opt = wrap(net)
    got = []
    with diagnostics.attach(opt, every=2, sinks=[got.append]) as probe:
        train(net, opt, 1)
        assert steps(probe) == [0] and not got
        train(net, opt, 2, start=1)
        assert [r["step"] for r in got] == [0]
    assert [r["step"] for r in got] == [0, 2]
    assert got[0]["observed"] is None


def test_after_close_nothing_is_watched():
    net = Net()
    opt = wrap(net, "uw", "full")
    probe = diagnostics.attach(opt, every=1)
    other = diagnostics.attach(opt, every=1)
    train(net, opt, 2)
    probe.close()
    probe.close()
    train(net, opt, 2, start=2)
    assert steps(probe) == [0, 1] and steps(other) == [0, 1, 2, 3]
    assert opt.run.probes == (other,)
    other.close()
    assert opt.run.probes == ()
    assert not opt.optimizer._optimizer_step_pre_hooks and not opt.optimizer._optimizer_step_post_hooks


def test_two_probes_see_the_same():
    net = Net()
    opt = wrap(net, "rlw", "pair")
    probes = [diagnostics.attach(opt, every=2, exact=True) for _ in range(2)]
    train(net, opt, 3)
    a, b = ([{k: v for k, v in row.items() if k != "seconds"} for row in probe.rows] for probe in probes)
    assert len(a) == 2 and a == b


def test_only_the_last_rows_are_kept():
    net = Net()
    opt = wrap(net)
    got = []
    probe = diagnostics.attach(opt, every=1, sinks=got.append, keep=2)
    train(net, opt, 5)
    probe.close()
    assert steps(probe) == [3, 4] and [r["step"] for r in got] == [0, 1, 2, 3, 4]


def test_a_sink_that_raises_is_dropped_and_training_goes_on():
    net, control = Net(), Net()
    train(control, wrap(control), 4)
    opt = wrap(net)
    got = []

    def broken(row):
        raise OSError("the disk is full")

    def rude(row):
        row.clear()

    probe = diagnostics.attach(opt, every=1, sinks=[broken, rude, got.append])
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        train(net, opt, 4)
        probe.close()
    assert [str(w.message) for w in seen if "disk is full" in str(w.message)] == [str(seen[0].message)]
    assert [r["step"] for r in got] == [0, 1, 2, 3]
    assert same_params(net, control)


def test_the_trainable_parameters_may_change():
    net = Net()
    opt = wrap(net, "uw", "full")
    probe = diagnostics.attach(opt, every=1, exact=True)
    net.heads[2].requires_grad_(False)
    train(net, opt, 2)
    net.heads[2].requires_grad_(True)
    train(net, opt, 2, start=2)
    assert steps(probe) == [0, 1, 2, 3]
    grown = probe.rows[2]["bytes"]["probe"] - probe.rows[1]["bytes"]["probe"]
    assert grown == 8 * sum(p.numel() for p in net.heads[2].parameters())


BAD = [
    (lambda net: "adam", {}, TypeError, "torch optimizer"),
    (lambda net: AdaTask(net.parameters()), {}, TypeError, "AdaTask"),
    (lambda net: torch.optim.LBFGS(net.parameters()), {}, ValueError, "once per step"),
    (lambda net: MultiObjective(torch.optim.LBFGS(net.parameters())), {}, ValueError, "once per step"),
    (wrap, {"every": 0}, ValueError, "every must be"),
    (wrap, {"every": 2.5}, ValueError, "every must be"),
    (wrap, {"keep": 0}, ValueError, "keep must be"),
    (wrap, {"start": -1}, ValueError, "start must be"),
    (wrap, {"sinks": 3}, TypeError, "sinks must be"),
    (wrap, {"sinks": [3]}, TypeError, "a sink must be"),
    (wrap, {"objectives": ["a"]}, ValueError, "objectives are the optimizer's own"),
    (lambda net: wrap(net, "ls", "full"), {"shadow": PreferenceMetric()}, ValueError, "shadow"),
    (lambda net: wrap(net, max_norm=1.0), {"shadow": PreferenceMetric()}, ValueError, "shadow"),
    (lambda net: wrap(net, "uw"), {"shadow": PreferenceMetric("collapsed")}, ValueError, "collapsed"),
    (adam, {"exact": True}, ValueError, "MultiObjective"),
    (adam, {"shadow": PreferenceMetric()}, ValueError, "MultiObjective"),
]


def test_bad_arguments():
    for make, options, error, match in BAD:
        optimizer = make(Net())
        with pytest.raises(error, match=match):
            diagnostics.attach(optimizer, **options)
        if isinstance(optimizer, MultiObjective):
            assert optimizer.run.probes == () and not optimizer.optimizer._optimizer_step_post_hooks


def test_a_wrapped_optimizer_has_a_backward_of_its_own():
    net = Net()
    probe = diagnostics.attach(MAdam(net.parameters()))
    with pytest.raises(TypeError, match=r"opt\.backward"):
        probe.backward(net.losses(0))
    assert probe.every == EVERY


@pytest.mark.parametrize("inner", ["Adam", "AdamW", "NAdam", "RAdam", "amsgrad"])
def test_the_second_moment_is_the_optimizers_own(inner):
    """Whatever the optimizer adds to d before it squares it, here a coupled decay."""
    net = Net()
    options = {"lr": 1e-2, "weight_decay": 0.1, "betas": (0.8, 0.9)}
    if inner == "amsgrad":
        optimizer = torch.optim.Adam(net.parameters(), amsgrad=True, **options)
    else:
        optimizer = getattr(torch.optim, inner)(net.parameters(), **options)
    opt = MultiObjective(optimizer, solvers.UW())
    probe = diagnostics.attach(opt, every=1)
    for t in range(4):
        opt.zero_grad()
        opt.backward(net.losses(t))
        losses = [net.losses(t)[i] for i in range(3)]
        rows = [torch.autograd.grad(loss, list(net.parameters()), allow_unused=True) for loss in losses]
        d = [p.grad.clone() for p in net.parameters()]
        opt.step()
        key = "max_exp_avg_sq" if inner == "amsgrad" else "exp_avg_sq"
        v = [optimizer.state[p][key] / (1 - 0.9 ** (t + 1)) for p in net.parameters()]
        for i, name in enumerate("012"):
            effect = sum(
                float((g * d_k / (v_k.sqrt() + 1e-8)).sum())
                for g, d_k, v_k in zip(rows[i], d, v, strict=True)
                if g is not None
            )
            assert probe.rows[-1]["effects"]["adam"][name] == pytest.approx(effect, rel=1e-9)


def test_a_metric_that_rests_is_measured_all_the_same():
    """With every=3 the averages are not updated in some measured steps; the metric still divides."""
    net = Net()
    opt = MultiObjective(adam(net), solvers.UW(), metric("full", every=3))
    probe = diagnostics.attach(opt, every=2)
    train(net, opt, 7)
    assert steps(probe) == [0, 2, 4, 6]
    assert all(row["effects"]["preference"]["0"] is not None for row in probe.rows)


@pytest.mark.parametrize("options", [{"exact": True}, {"shadow": True}], ids=str)
def test_a_probe_that_is_saved_and_loaded_goes_on_as_if_nothing_had_happened(tmp_path, options):
    """At every step of the grid and beside it; and the row that waits is not lost."""

    def watch(opt, folder, **more):
        own = {key: PreferenceMetric("full", rampup=3) if key == "shadow" else value for key, value in options.items()}
        return diagnostics.attach(opt, every=3, sinks=[folder], **own, **more)

    def read(folder):
        return [{**row, "seconds": None} for row in diagnostics.read(folder)]

    estimator = "full" if "exact" in options else None
    net = Net()
    opt = wrap(net, "uw", estimator)
    watch(opt, tmp_path / "whole")
    train(net, opt, 11)
    opt.run.probes[0].close()
    for stop in range(1, 11):
        net = Net()
        opt = wrap(net, "uw", estimator)
        first = watch(opt, tmp_path / str(stop))
        train(net, opt, stop)
        state = first.state_dict()
        opt.run.probes = ()  # killed: nothing is handed over any more
        second = watch(opt, tmp_path / str(stop))
        second.load_state_dict(state)
        train(net, opt, 11 - stop, start=stop)
        second.close()
        assert read(tmp_path / str(stop)) == read(tmp_path / "whole")
    assert [row["step"] for row in read(tmp_path / "whole")] == [0, 3, 6, 9]
