"""The checks, one small function each: it returns if all is well, and raises if not."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from .. import solvers
from ..metric import ESTIMATORS, EigenBasis, PreferenceMetric, ReferenceMetric
from ..optimizer import MAdam, MultiObjective
from ..testing import check_solver
from ._problem import COUNT, Net, assert_close, draw, exact_dtype, flat, preference_of, train
from ._run import Check, Skipped
from ._soap import soap

BETA = 0.999
STEPS = 20


def one_objective_is_adam(device: torch.device) -> None:
    """For a single objective MAdam is torch's Adam fed with g / sqrt(EMA of g^2)."""
    dtype = exact_dtype(device)
    ours, theirs = (nn.Parameter(draw(5, seed=0, device=device, dtype=dtype)) for _ in range(2))
    opt = MAdam([ours], lr=1e-2, solver=solvers.LS(), metric=PreferenceMetric(rampup=0))
    adam, v = torch.optim.Adam([theirs], lr=1e-2), torch.zeros_like(theirs)
    for t in range(1, STEPS + 1):
        x = draw(8, 5, seed=t, device=device, dtype=dtype)
        opt.zero_grad()
        opt.backward([(x @ ours - 1).square().mean()])
        opt.step()
        (g,) = torch.autograd.grad((x @ theirs - 1).square().mean(), theirs)
        v = BETA * v + (1 - BETA) * g * g
        theirs.grad = g / torch.sqrt(v / (1 - BETA**t) + 1e-16)
        adam.step()
    assert_close(ours, theirs)


def _whitened(device: torch.device, estimator: str, solver: solvers.Solver, rampup: int) -> tuple[Tensor, Tensor]:
    """What the optimizer sees in each step on linear losses, whose gradients [steps, C, n] are given back too."""
    dtype = exact_dtype(device)
    sizes = torch.logspace(-1, 1, COUNT, dtype=torch.float64, device="cpu")[:, None].to(device, dtype)
    rows = sizes * draw(STEPS, COUNT, 7, seed=1, device=device, dtype=dtype)
    param = nn.Parameter(torch.zeros(7, device=device, dtype=dtype))
    metric = PreferenceMetric(ESTIMATORS[estimator](), beta=BETA, rampup=rampup)
    opt = MultiObjective(torch.optim.SGD([param], lr=0.0), solver, metric, rows="all")
    seen = []
    for t, gradients in enumerate(rows):
        opt.zero_grad()
        opt.backward([g @ param for g in gradients], preference_of(opt, t))
        assert param.grad is not None
        seen.append(param.grad.clone())
        opt.step()
    return torch.stack(seen), rows


def full_is_collapsed(device: torch.device) -> None:
    """With constant weights, all pairs of averages and the one average of d^2 are the same metric."""
    full, _ = _whitened(device, "full", solvers.LS([0.2, 0.3, 0.5]), rampup=8)
    collapsed, _ = _whitened(device, "collapsed", solvers.LS([0.2, 0.3, 0.5]), rampup=8)
    assert_close(full, collapsed)


def fast_is_reference(device: torch.device) -> None:
    """The fast metric is the paper's, computed one objective at a time, under weights that change each step."""
    solver = solvers.Preference()
    found, rows = _whitened(device, "full", solver, rampup=8)
    reference = ReferenceMetric(beta=BETA, rampup=8)
    pairs = [(i, j) for i in range(COUNT) for j in range(i, COUNT)]
    wanted = []
    for t, gradients in enumerate(rows):
        preference = 0.1 + draw(COUNT, seed=t, device=torch.device("cpu"), dtype=torch.float64).abs()
        weights = (preference / preference.sum()).tolist()
        d = sum((w * g for w, g in zip(weights, gradients, strict=True)), torch.zeros_like(gradients[0]))
        wanted.append(reference.step(dict(enumerate(gradients)), pairs, weights, d))
    assert_close(found, torch.stack(wanted))


def eigenbasis_is_soap(device: torch.device) -> None:
    """With constant weights before plain SGD, the eigenbasis is SOAP without momentum, here dense in NumPy."""
    rows = draw(15, 2, 5, 4, seed=3, device=device, dtype=exact_dtype(device))
    param = nn.Parameter(torch.ones(5, 4, device=device, dtype=rows.dtype))
    metric = PreferenceMetric(beta=0.9, eps=1e-12, rampup=0, basis=EigenBasis(every=4, beta=0.9))
    opt = MultiObjective(torch.optim.SGD([param], lr=0.1), solvers.LS(), metric)
    for gradients in rows:
        opt.zero_grad()
        opt.backward([(g * param).sum() for g in gradients])
        opt.step()
    wanted = soap(rows.mean(1).double().cpu().numpy(), lr=0.1, beta2=0.9, basis_beta=0.9, every=4, eps=1e-12)
    assert_close(param, torch.from_numpy(wanted), rtol=1e-6 if rows.dtype == torch.float64 else 5e-3)


def solver_keeps_promises(name: str, device: torch.device) -> None:
    """What every solver promises, on losses and Gram matrices of the device."""
    check_solver(lambda: solvers.get(name), device="cpu" if device.type == "mps" else device)


def _trained(device: torch.device, dtype: torch.dtype, solver: str, metric: PreferenceMetric, steps: int) -> Net:
    net = Net(device, dtype)
    train(net, MAdam(net.parameters(), lr=1e-2, solver=solvers.get(solver), metric=metric), range(steps))
    return net


def device_is_cpu(device: torch.device) -> None:
    """Every solver and every estimator train the same network on the device and on the CPU."""
    if device.type == "cpu":
        raise Skipped("the device is the CPU")
    cases = [(name, "full") for name in solvers.available()]
    cases += [("ls" if e == "collapsed" else "rlw", e) for e in ESTIMATORS if e != "full"]
    for solver, estimator in cases:
        nets = [
            _trained(place, exact_dtype(device), solver, PreferenceMetric(ESTIMATORS[estimator](), rampup=3), 5)
            for place in (device, torch.device("cpu"))
        ]
        try:
            assert_close(flat(nets[0]), flat(nets[1]), rtol=1e-5 if exact_dtype(device) == torch.float64 else 1e-2)
        except AssertionError as error:
            raise AssertionError(f"{solver} with {estimator}: {error}") from None


def float32_is_near_float64(device: torch.device) -> None:
    if device.type == "mps":
        raise Skipped("the device has no float64")
    for basis in ("identity", "eigen"):
        nets = [
            _trained(device, dtype, "cagrad", PreferenceMetric("full", basis=basis), STEPS)
            for dtype in (torch.float32, torch.float64)
        ]
        assert_close(flat(nets[0]), flat(nets[1]), rtol=1e-2)


def bfloat16_trains(device: torch.device) -> None:
    """Parameters in bfloat16, averages in float32: the losses fall as they do in float32, to a tenth."""
    ends = []
    for dtype in (torch.bfloat16, torch.float32):
        net = Net(device, dtype)
        opt = MAdam(net.parameters(), lr=1e-2, solver=solvers.LS(), metric=PreferenceMetric("full"))
        before = float(sum(net.losses(0)))
        train(net, opt, range(60))
        ends.append(float(sum(net.losses(0))) / before)
    assert ends[1] < 0.9, f"in float32 the loss went to {ends[1]:.3f} of what it was"
    assert abs(ends[0] - ends[1]) < 0.1, f"bfloat16 ends at {ends[0]:.3f} of the first loss, float32 at {ends[1]:.3f}"


def _scaler(device: torch.device) -> torch.amp.GradScaler:
    try:
        scaler = torch.amp.GradScaler(device.type, init_scale=2.0**12)
    except RuntimeError as error:
        raise Skipped(f"torch has no GradScaler for {device.type}: {error}") from None
    if not scaler.is_enabled():
        raise Skipped(f"torch has no GradScaler for {device.type}")
    return scaler


def _scaled_step(net: Net, opt: MultiObjective, scaler: torch.amp.GradScaler, losses: list[Tensor]) -> None:
    opt.zero_grad()
    opt.backward(losses, scaler=scaler)
    scaler.step(opt)
    scaler.update()


def scaler_changes_nothing(device: torch.device) -> None:
    """A GradScaler's scale is gone when the metric sees the gradients; a step that overflows leaves no trace."""
    scaler, nets = _scaler(device), [Net(device, torch.float32) for _ in range(2)]
    plain, scaled = (MAdam(net.parameters(), solver="cagrad", metric=PreferenceMetric("full")) for net in nets)
    train(nets[0], plain, range(6))
    for t in range(3):
        _scaled_step(nets[1], scaled, scaler, nets[1].losses(t))
    before = flat(nets[1])
    _scaled_step(nets[1], scaled, scaler, [loss * torch.inf for loss in nets[1].losses(3)])
    assert torch.equal(before, flat(nets[1])), "a step that overflowed moved the parameters"
    for t in range(3, 6):
        _scaled_step(nets[1], scaled, scaler, nets[1].losses(t))
    assert_close(flat(nets[1]), flat(nets[0]), rtol=1e-5)


def autocast_trains(device: torch.device) -> None:
    """float16 on a GPU, bfloat16 elsewhere, under autocast with a GradScaler: the losses fall."""
    scaler, net = _scaler(device), Net(device, torch.float32)
    opt = MAdam(net.parameters(), lr=1e-2, solver=solvers.LS(), metric=PreferenceMetric("full"))
    half = torch.float16 if device.type == "cuda" else torch.bfloat16
    before = float(sum(net.losses(0)))
    for t in range(60):
        with torch.autocast(device.type, dtype=half):
            losses = net.losses(t)
        _scaled_step(net, opt, scaler, losses)
    after = float(sum(net.losses(0)))
    assert after < 0.9 * before, f"the loss went from {before:.3f} to {after:.3f}"


def resumes(make: Callable[[Net], MultiObjective], device: torch.device) -> None:
    """A run that is saved, loaded into new objects and continued is the run that was not interrupted, bit for bit."""
    net = Net(device, torch.float32)
    opt = make(net)
    train(net, opt, range(4))
    file = io.BytesIO()
    torch.save({"net": net.state_dict(), "opt": opt.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True, map_location="cpu")  # as on another machine
    fresh = Net(device, torch.float32)
    again = make(fresh)
    fresh.load_state_dict(saved["net"])
    again.load_state_dict(saved["opt"])
    for run, optimizer in ((net, opt), (fresh, again)):
        train(run, optimizer, range(4, 8))
    assert torch.equal(flat(net), flat(fresh)), "the steps after loading differ from those without"


def _optimizer(net: Net, solver: str, **options: object) -> MultiObjective:
    return MAdam(net.parameters(), solver=solver, metric=PreferenceMetric(**options))  # type: ignore[arg-type]


RESUMED: dict[str, Callable[[Net], MultiObjective]] = {
    "ls": partial(_optimizer, solver="ls"),
    "cagrad, full": partial(_optimizer, solver="cagrad", estimator="full"),
    "rlw, pair": partial(_optimizer, solver="rlw", estimator="pair"),
    "graddrop, averages in bfloat16": partial(_optimizer, solver="graddrop", estimator="full", dtype=torch.bfloat16),
    "uw, eigenbasis": partial(_optimizer, solver="uw", estimator="full", basis="eigen"),
}

CHECKS: dict[str, Check] = {
    "one objective is Adam on the whitened gradient": one_objective_is_adam,
    "full with constant weights is collapsed": full_is_collapsed,
    "the fast metric is the reference": fast_is_reference,
    "the eigenbasis is SOAP under constant weights": eigenbasis_is_soap,
    "the device computes what the CPU does": device_is_cpu,
    "float32 is near float64": float32_is_near_float64,
    "bfloat16 trains": bfloat16_trains,
    "a GradScaler changes nothing": scaler_changes_nothing,
    "autocast trains": autocast_trains,
    **{f"resume bit for bit: {name}": partial(resumes, make) for name, make in RESUMED.items()},
    **{f"solver {name}": partial(solver_keeps_promises, name) for name in solvers.available()},
}
"""What ``madamoo selftest`` runs, by name."""
