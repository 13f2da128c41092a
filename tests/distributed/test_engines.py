"""What belongs to one engine: buffers and gradients at features under DDP, precision and refusals under fully_shard."""

import copy

import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor, init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from madamoo import MSOAP, MAdam, MultiObjective, PreferenceMetric, diagnostics, solvers
from madamoo.relatives import SOAP, AdaTask, MTAdam
from split_batches import Case, Net, assert_same, batch, build, losses_of, result, step, trained, whole, world, wrapped


def _with_buffers(steps=3):
    rank, count = world()
    net = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    model = DistributedDataParallel(net)
    opt = MAdam(model.parameters(), lr=1e-2, solver="cagrad")
    for t in range(steps):
        x, y = batch(t, torch.float32, rank, count)
        opt.zero_grad()
        opt.backward([(model(x)[:, i] - y[:, i]).square().mean() for i in range(3)])
        opt.step()
    model(x)  # which sends the buffers of the first process
    return [p.detach() for p in net.parameters()], net[1].running_mean


def test_replicas_with_buffers_stay_alike(two):
    (params, _), (others, _) = two.run(_with_buffers)
    torch.testing.assert_close(params, others, rtol=0, atol=0)


def _at_features(steps=5, engine="ddp"):
    case = Case("mgda", "marginal", engine, options={"gram": "features"})
    net = Net()
    opt = MultiObjective(
        torch.optim.SGD(net.parameters(), lr=0.1),
        solvers.MGDA(),
        PreferenceMetric("marginal", rampup=2),
        gram="features",
    )
    for t in range(steps):
        x, y = batch(t, case.dtype, *world())
        features = net.trunk(x)
        out = torch.cat([head(features) for head in net.heads], dim=1)
        opt.zero_grad()
        opt.backward(losses_of(out, y, case, t)[0], features=features)
        opt.step()
    return result(net, opt)


def test_gram_matrix_of_features(two):
    """Each process has the features of its own samples."""
    wanted = _at_features()
    for found in two.run(_at_features):
        assert_same(found, wanted, 1e-10, 1e-13)


def _ready_made(kind, engine):
    net, case = Net(), Case(engine=engine)
    model = wrapped(net, case)
    opt = kind(net.parameters(), lr=1e-2, solver="uw", weight_decay=0.1)
    for t in range(5):
        step(model, opt, case, t)
    return result(net, opt)


@pytest.mark.parametrize("kind", [MAdam, MSOAP])
def test_sharded_and_whole_parameters_in_one_group(two, kind):
    """Which torch takes one by one alone."""
    for found in two.run(_ready_made, kind, "mixed"):
        assert_same(found, _ready_made(kind, "plain"), 1e-7, 1e-9)


def _half(steps, dtype):
    rank, count = world()
    net = Net(torch.float32)
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for part in (net.trunk[0], net.trunk[2], *net.heads):
        fully_shard(part, mp_policy=policy)
    fully_shard(net, mp_policy=policy)
    opt = MAdam(net.parameters(), lr=1e-2, solver="uw")
    case = Case("uw", "full", "fsdp", dtype=torch.float32)
    for t in range(steps):
        x, y = batch(t, torch.float32, rank, count)
        opt.zero_grad()
        opt.backward(losses_of(net(x).float(), y, case, t)[0])
        opt.step()
    assert all(p.grad.dtype == torch.float32 and isinstance(p.grad, DTensor) for p in net.parameters())
    return [whole(p.detach()) for p in net.parameters()]


def test_shards_in_mixed_precision(two):
    """Sums of bfloat16 numbers: to the precision that these have, what one process computes in float32."""
    found, other = two.run(_half, 5, torch.bfloat16)
    exact, _ = two.run(_half, 5, torch.float32)
    torch.testing.assert_close(found, other, rtol=0, atol=0)
    torch.testing.assert_close(found, exact, rtol=0, atol=5e-2)
    assert any(not torch.equal(a, b) for a, b in zip(found, exact, strict=True))


def _refused(kind):
    rank, count = world()
    net = Net()
    options, metric, inner = {}, PreferenceMetric("full"), None
    if kind == "features":
        options = {"gram": "features"}
        metric = None
    if kind == "soap":
        fully_shard(net)
        SOAP(net.parameters())
    if kind == "float8":
        metric = PreferenceMetric("full", dtype=torch.float8_e5m2)
    if kind == "tensor parallel":
        mesh = init_device_mesh("cpu", (count, 1))
        for name, p in [*net.trunk[0].named_parameters()]:
            placed = distribute_tensor(p.detach(), mesh, [Shard(0), Shard(0)])
            net.trunk[0].register_parameter(name, nn.Parameter(placed))
    elif kind == "closure":
        inner, metric = torch.optim.LBFGS(net.parameters()), None
    else:
        for part in (net.trunk[0], net.trunk[2], *net.heads):
            fully_shard(part)
        fully_shard(net)
    inner = inner or torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)
    opt = MultiObjective(inner, solvers.LS() if kind == "closure" else solvers.MGDA(), metric, **options)
    x, y = batch(0, torch.float64, rank, count)
    if kind == "tensor parallel":
        opt.backward([sum(whole(p).square().sum() for p in net.parameters())])
        return
    features = net.trunk(x)
    losses = losses_of(torch.cat([head(features) for head in net.heads], dim=1), y, Case(), 0)[0]
    opt.backward(losses, **({"features": features} if kind == "features" else {}))


@pytest.mark.parametrize(
    "kind, said",
    [
        ("features", "gram='features'"),
        ("float8", "torch.bfloat16"),
        ("soap", "SOAP takes whole matrices"),
        ("tensor parallel", "tensor parallelism"),
        ("closure", "evaluates its closure"),
    ],
)
def test_what_cannot_work_is_refused_by_all(two, kind, said):
    for error in two.outcomes(_refused, kind):
        assert isinstance(error, ValueError) and said in str(error), error


def _copied(case):
    """A copy goes on as the original does."""
    net, model, opt = build(case)
    step(model, opt, case, 0)
    other, twin = copy.deepcopy((net, opt))
    step(net, opt, case, 1)
    step(other, twin, case, 1)
    return result(net, opt), result(other, twin)


def test_a_copy_of_an_optimizer_of_replicas(two):
    for first, second in two.run(_copied, Case("uw", "full", "plain", options={"process_group": None})):
        assert_same(first, second, 0, 0)


def _replicas_of_shards(case):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
    net = Net(case.dtype)
    for part in (net.trunk[0], net.trunk[2], *net.heads):
        fully_shard(part, mesh=mesh)
    fully_shard(net, mesh=mesh)
    opt = MultiObjective(
        torch.optim.AdamW(net.parameters(), lr=1e-2),
        solvers.get(case.solver),
        PreferenceMetric(case.estimator, rampup=5),
    )
    for t in range(case.steps):
        step(net, opt, case, t)
    return result(net, opt)


def test_replicas_of_shards(four):
    case = Case("cagrad", "separable", "plain", steps=5)
    for found in four.run(_replicas_of_shards, case):
        assert_same(found, trained(case), 1e-10, 1e-13)


def _named_group():
    """Half of the processes train one model, half another."""
    rank, _ = world()
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    torch.manual_seed(rank // 2)
    net = nn.Linear(3, 2, dtype=torch.float64)
    opt = MAdam(net.parameters(), lr=0.1, process_group=halves[rank // 2])
    x = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(rank))
    for _ in range(3):
        opt.zero_grad()
        opt.backward(net(x).square().mean(0))
        opt.step()
    assert copy.deepcopy(opt).options.process_group is halves[rank // 2]
    return net.weight.detach()


def test_groups_of_processes(four):
    a, b, c, d = four.run(_named_group)
    assert torch.equal(a, b) and torch.equal(c, d) and not torch.equal(a, c)


def _relative(kind, steps=5):
    rank, count = world()
    net = Net()
    opt = kind(net.parameters(), lr=1e-2)
    for t in range(steps):
        x, y = batch(t, torch.float64, rank, count)
        losses = losses_of(net(x), y, Case(), t)[0]
        opt.zero_grad()
        opt.backward(losses)
        opt.step()
    return [p.detach() for p in net.parameters()]


@pytest.mark.parametrize("kind", [AdaTask, MTAdam])
def test_relatives_of_madam(two, kind):
    wanted = _relative(kind)
    for found in two.run(_relative, kind):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-13)


def _watched():
    diagnostics.attach(MAdam([nn.Parameter(torch.ones(2))]))


def test_a_probe_sees_one_process_only(two):
    for error in two.outcomes(_watched):
        assert isinstance(error, ValueError) and "2 processes" in str(error)
