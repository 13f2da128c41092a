"""One batch, split over processes: the same training in one process, under DDP and under ``fully_shard``."""

from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from madamoo import MultiObjective, PreferenceMetric, solvers

NAMES, C, SAMPLES = ("pde", "left", "right"), 3, 12


class Net(nn.Module):
    """A trunk, and a head for each objective. 7 and 1 rows do not divide evenly among 2 or 4 processes."""

    def __init__(self, dtype=torch.float64):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.trunk = nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 5), nn.Tanh())
            self.heads = nn.ModuleList(nn.Linear(5, 1) for _ in range(C))
        self.to(dtype)

    def forward(self, x):
        h = self.trunk(x)
        return torch.cat([head(h) for head in self.heads], dim=1)


@dataclass(frozen=True)
class Case:
    """What is trained, and how."""

    solver: str = "ls"
    estimator: str | None = "full"
    engine: str = "ddp"  # or "plain", "fsdp", "mixed"
    steps: int = 20
    dtype: torch.dtype = torch.float64
    metric: dict = field(default_factory=dict)
    options: dict = field(default_factory=dict)  # of the optimizer
    ddp: dict = field(default_factory=dict)
    form: str = "dict"  # of the losses: or "list", "stack"
    parts: int = 1  # micro-batches
    no_sync: bool = False
    scaled: bool = False  # by a GradScaler
    clip: float | None = None  # of .grad
    momentum: bool = False  # SGD with momentum, not Adam
    lack: bool = False  # batches lack objectives
    ragged: bool = False  # samples lack labels, so that processes have different numbers of them, or none
    compiled: bool = False


def world():
    """This process' number and how many there are."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def wrapped(net, case):
    """The network as the engine has it, in more than one process."""
    if world()[1] == 1 or case.engine == "plain":
        return net
    if case.engine == "ddp":
        return DistributedDataParallel(net, **case.ddp)
    for part in (net.trunk[0], net.trunk[2], *(net.heads[:1] if case.engine == "mixed" else net.heads)):
        fully_shard(part)
    return net if case.engine == "mixed" else fully_shard(net)


def build(case):
    net = Net(case.dtype)
    model = wrapped(net, case)
    params = list(net.parameters())
    inner = torch.optim.AdamW(params, lr=1e-2, foreach=False)
    if case.momentum:
        inner = torch.optim.SGD(params, lr=1e-2, momentum=0.9, foreach=False)
    metric = None if case.estimator is None else PreferenceMetric(case.estimator, **{"rampup": 5, **case.metric})
    opt = MultiObjective(inner, solvers.get(case.solver), metric, **case.options)
    return net, model, opt


def batch(t, dtype, rank, count):
    """This process' part of batch ``t``."""
    generator = torch.Generator().manual_seed(t)
    x = torch.randn(SAMPLES, 4, generator=generator, dtype=torch.float64).to(dtype)
    y = torch.randn(SAMPLES, C, generator=generator, dtype=torch.float64).to(dtype)
    return x.chunk(count)[rank], y.chunk(count)[rank]


def losses_of(out, y, case, t, parts=1):
    each = [(out[:, i] - y[:, i]).square() * (1 + 3 * i) / parts for i in range(C)]
    if case.ragged:
        labelled = [errors[y[:, i] > 0.3 * i] for i, errors in enumerate(each)]
        counts = dict(zip(NAMES, map(len, labelled), strict=True))
        # Where no sample has the label: None, or a zero that is connected, for sharded parameters.
        none = [0.0 * errors.sum() for errors in each] if case.engine == "fsdp" else [None] * C
        each = [some.mean() if len(some) else zero for some, zero in zip(labelled, none, strict=True)]
        return dict(zip(NAMES, each, strict=True)), counts
    return _in_form([errors.mean() for errors in each], case, t), None


def _in_form(each, case, t):
    if case.lack and t % 3:
        each[t % C] = None
    if case.form == "stack":
        return torch.stack(each)
    return (
        each
        if case.form == "list"
        else {name: loss for name, loss in zip(NAMES, each, strict=True) if loss is not None}
    )


def wish(opt, t):
    if not opt.solver.uses_preference:
        return None
    return torch.rand(C, generator=torch.Generator().manual_seed(t), dtype=torch.float64) + 0.1


def step(model, opt, case, t, scaler=None):
    rank, count = world()
    opt.zero_grad()
    x, y = batch(t, case.dtype, rank, count)
    for k, (xs, ys) in enumerate(zip(x.chunk(case.parts), y.chunk(case.parts), strict=True)):
        hold = case.no_sync and k + 1 < case.parts
        with opt.no_sync() if hold else nullcontext():
            losses, counts = losses_of(model(xs), ys, case, t, case.parts)
            opt.backward(losses, wish(opt, t), scaler=scaler, counts=counts)
    if scaler is not None:
        scaler.unscale_(opt)
    if case.clip is not None:
        nn.utils.clip_grad_norm_(model.parameters(), case.clip, foreach=False)
    if scaler is None:
        opt.step()
    else:
        scaler.step(opt)
        scaler.update()


def whole(x):
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def result(net, opt):
    """The parameters, whole, and what the optimizer says of the last step."""
    return {
        "params": [whole(p.detach()).clone() for p in net.parameters()],
        "weights": opt.weights.double(),
        "losses": opt.run.losses,
        "skipped": opt.skipped,
    }


def trained(case, start=0):
    """Train from the beginning, and give the result."""
    net, model, opt = build(case)
    if case.compiled:
        model = torch.compile(model, backend="aot_eager")
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10) if case.scaled else None
    for t in range(start, start + case.steps):
        step(model, opt, case, t, scaler)
    return result(net, opt)


def assert_same(found, wanted, rtol, atol=0.0):
    for name in ("params", "weights", "losses"):
        torch.testing.assert_close(found[name], wanted[name], rtol=rtol, atol=atol, equal_nan=True)
    assert found["skipped"] == wanted["skipped"]
