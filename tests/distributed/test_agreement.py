"""What one process finds, all of them act on: they skip alike, raise alike, and none hangs."""

import multiprocessing
import time
from contextlib import nullcontext
from datetime import timedelta
from unittest import mock

import pytest
import torch
from torch import distributed as dist

from madamoo import MAdam, MultiObjective, PreferenceMetric, solvers
from split_batches import NAMES, Case, batch, build, losses_of, result, step, world

ENGINES = ["ddp", "fsdp"]


def _given(change, case):
    """A step in which one process' losses are changed, and what became of it; another step, to see that all is well."""
    net, model, opt = build(case)
    step(model, opt, case, 0)
    rank, count = world()
    x, y = batch(1, case.dtype, rank, count)
    losses, _ = losses_of(model(x), y, case, 1)
    options = change(losses, rank) or {}
    before = result(net, opt)
    opt.zero_grad()
    failed = None
    try:
        opt.backward(losses, **options)
        opt.step()
    except Exception as error:
        failed = f"{type(error).__name__}: {error}"
    assert not failed or all(p.grad is None for p in net.parameters()), "a gradient was written"
    after = result(net, opt)
    moved = not all(map(torch.equal, before["params"], after["params"]))
    step(model, opt, case, 2)
    return {"failed": failed, "moved": moved, "skipped": opt.skipped, "end": result(net, opt)["params"]}


def _infinite(losses, rank):
    if rank == 1:
        losses["left"] = losses["left"] * torch.inf


def _bad_gradient(losses, rank):
    """Finite as a loss, not once it is differentiated: the root of zero."""
    if rank == 1:
        losses["left"] = losses["left"] + (losses["left"] - losses["left"]).sqrt()


def _detached(losses, rank):
    if rank == 1:
        losses["left"] = losses["left"].detach()


def _misnamed(losses, rank):
    if rank == 1:
        losses["up"] = losses.pop("left")


def _other_preference(losses, rank):
    return {"preference": [1.0, 1.0 + rank, 1.0]}


def _preference_of_one(losses, rank):
    return {"preference": [1.0, 1.0, 1.0] if rank else None}


def _without_one(losses, rank):
    if rank == 1:
        del losses["left"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("solver", ["uw", "cagrad"])
@pytest.mark.parametrize("change", [_infinite, _bad_gradient])
def test_what_is_not_finite_in_one_is_skipped_by_all(two, change, solver, engine):
    found = two.run(_given, change, Case(solver, "full", engine))
    for each in found:
        assert each["skipped"] == 1 and not each["failed"] and not each["moved"]
        torch.testing.assert_close(each["end"], found[0]["end"], rtol=0, atol=0)
        assert all(bool(p.isfinite().all()) for p in each["end"])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "change, solver, own, said",
    [
        (_detached, "uw", "ValueError: loss 'left' has no graph", "process 1 of 2 has failed"),
        (_misnamed, "cagrad", "ValueError: losses hold the unknown objective", "process 1 of 2 has failed"),
        (_other_preference, "preference", "preference must be the same", "preference must be the same"),
        (_preference_of_one, "epo", "preference must be the same", "preference must be the same"),
    ],
)
def test_an_error_of_one_is_raised_by_all(two, change, solver, own, said, engine):
    first, second = two.run(_given, change, Case(solver, "full", engine))
    assert own in second["failed"] and said in first["failed"] and not (first["moved"] or second["moved"])
    torch.testing.assert_close(first["end"], second["end"], rtol=0, atol=0)


def test_shards_need_every_loss_in_every_process(two):
    for each in two.run(_given, _without_one, Case("uw", "full", "fsdp")):
        assert "'left': only some processes have this loss" in each["failed"] and not each["moved"]


def _without_memory(case):
    rank, _ = world()
    with mock.patch("madamoo.metric._memory.free_memory", return_value=0) if rank else nullcontext():
        try:
            _, model, opt = build(case)
            step(model, opt, case, 0)
        except Exception as error:
            return f"{type(error).__name__}: {error}", opt.skipped, opt.state_dict()["multi_objective"]["n_objectives"]
    return "nothing", 0, 0


@pytest.mark.parametrize("engine", ENGINES)
def test_memory_that_one_lacks(two, engine):
    first, second = two.run(_without_memory, Case("uw", "full", engine))
    assert second[0].startswith("MemoryError") and "process 1 of 2 has failed" in first[0] and "MemoryError" in first[0]
    assert first[1:] == second[1:] == (0, None)


def _different(kind):
    rank, _ = world()
    width = 3 + (kind == "parameters" and rank)
    net = torch.nn.Linear(4, width)
    solver = solvers.CAGrad(c=0.1 + 0.1 * rank) if kind == "solver" else solvers.CAGrad()
    metric = PreferenceMetric("full", eps=1e-8 if kind == "metric" and rank else 1e-16)
    opt = MultiObjective(torch.optim.SGD(net.parameters(), lr=0.1), solver, metric)
    out = net(torch.ones(2, 4)).square().mean(0)
    losses = list(out[:3]) if kind != "count" or not rank else list(out[:2])
    opt.backward(losses)


@pytest.mark.parametrize("kind", ["parameters", "solver", "metric", "count"])
def test_processes_that_are_built_differently(two, kind):
    for error in two.outcomes(_different, kind):
        assert isinstance(error, ValueError) and f"process 1 has other {kind} than process 0" in str(error)


def _in_turn():
    """The first batch of one process has other objectives, in another order, than that of the other."""
    rank, _ = world()
    net = torch.nn.Linear(2, 2, dtype=torch.float64)
    torch.nn.init.ones_(net.weight)
    opt = MAdam(net.parameters(), lr=0.1, solver="ls")
    out = net(torch.ones(1, 2, dtype=torch.float64))
    losses = {"b": out[0, 1].square()} if rank else {"a": out[0, 0] ** 2, "c": out.sum() ** 2}
    opt.backward(losses)
    return opt.objectives, opt.losses_by_name, opt.weights_by_name


def test_objectives_are_those_of_all_first_batches(two):
    first, second = two.run(_in_turn)
    assert (
        first == second
        and first[0] == ("a", "c", "b")
        and first[2] == pytest.approx({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3})
    )


def _unfinished():
    case = Case("uw", "full", "plain")
    _, model, opt = build(case)
    x, y = batch(0, case.dtype, *world())
    with opt.no_sync():
        opt.backward(losses_of(model(x), y, case, 0)[0])
    assert all(p.grad is None for p in model.parameters())
    with pytest.raises(RuntimeError, match="outside of it"):
        opt.step()
    opt.zero_grad()
    opt.step()  # nothing is pending


def test_a_step_needs_a_backward_that_sends(two):
    _unfinished()
    two.run(_unfinished)


def _apart():
    """Two runs that have nothing to do with each other."""
    rank, _ = world()
    alone = dist.new_group([rank], use_local_synchronization=True)
    net = torch.nn.Linear(2, 2)
    opt = MAdam(net.parameters(), lr=0.1, process_group=alone)
    for _ in range(2 + rank):
        opt.zero_grad()
        opt.backward(net(torch.ones(1, 2)).square().flatten().unbind())
        opt.step()
    return opt.metric.steps


def test_a_group_of_its_own(two):
    assert two.run(_apart) == [2, 3]


def _dying(rank, file, queue):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{file}", rank=rank, world_size=2, timeout=timedelta(seconds=10)
    )
    case = Case("uw", "full", "plain")
    _, model, opt = build(case)
    step(model, opt, case, 0)
    if rank == 1:
        queue.put("ready")
        time.sleep(60)
    try:
        step(model, opt, case, 1)
    except RuntimeError as error:
        queue.put(str(error))


def test_a_process_that_waits_for_a_dead_one_ends_with_an_error(tmp_path):
    fork = multiprocessing.get_context("fork")
    queues = fork.Queue(), fork.Queue()  # one each: who is killed may take the lock of its queue along
    waiting, dying = (fork.Process(target=_dying, args=(rank, tmp_path / "store", queues[rank])) for rank in (0, 1))
    waiting.start()
    dying.start()
    assert queues[1].get(timeout=60) == "ready"
    dying.kill()
    assert queues[0].get(timeout=60)
    waiting.join(timeout=60)
    assert waiting.exitcode == 0
    dying.join()


def _sent(case, steps):
    """Bytes that each collective of a training run is given, and those of DDP's own for one loss."""
    sent = []
    real = dist.all_reduce

    def counting(tensor, *args, **kwargs):
        sent.append(tensor.numel() * tensor.element_size())
        return real(tensor, *args, **kwargs)

    net, model, opt = build(case)
    with mock.patch.object(dist, "all_reduce", counting):
        step(model, opt, case, 0)
        sent.clear()
        for t in range(1, 1 + steps):
            step(model, opt, case, t)
    own = [p.numel() * p.element_size() for head in net.heads for p in head.parameters()]
    return sum(sent), sum(p.numel() * p.element_size() for p in net.trunk.parameters()), sum(own)


@pytest.mark.parametrize(
    "solver, estimator, rows",
    [("ls", "collapsed", 1), ("uw", "marginal", 1), ("uw", "full", len(NAMES)), ("cagrad", None, len(NAMES))],
)
def test_bytes_per_step(two, solver, estimator, rows):
    """One row per objective that is needed by itself (heads have one whatever happens), and a few small vectors."""
    for case in (Case(solver, estimator), Case(solver, estimator, parts=2, no_sync=True)):
        count, params, C = 5, 10, len(NAMES)
        losses = 8 * (1 + 2 + 5 * C)
        held = (losses + 1) * (case.parts - 1)
        small = held + losses + (1 + (C + 1) * params) + 1
        for sent, trunk, heads in two.run(_sent, case, count):
            assert sent == count * (rows * trunk + heads + small)
