"""Checkpoints of torch.distributed: saved on N processes, loaded on M, on one, and back."""

import warnings

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from madamoo.metric import EigenBasis
from split_batches import Case, assert_same, build, result, step, trained, world

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
HALF = 5
CASES = [
    ("uw", "full", {"normalise": True}),
    ("cagrad", "separable", {}),
    ("rlw", "pair", {}),
    ("ls", "collapsed", {}),
    ("graddrop", "diagonal", {}),
    ("uw", "marginal", {"dtype": torch.bfloat16}),
    ("cagrad", "full", {"momentum": 0.9}),
    ("rlw", "separable", {"momentum": 0.9, "basis": EigenBasis(every=2)}),
]


def _part(case, load=None, save=None, start=0, steps=HALF, full=False):
    """Go on from a checkpoint, if there is one, take steps, and write the next one."""
    net, model, opt = build(case)
    if load is not None:
        _load(model, opt, load, full)
    for t in range(start, start + steps):
        step(model, opt, case, t)
    if save is not None:
        _save(model, opt, save, full)
    return result(net, opt) if steps else None


def _save(model, opt, path, full):
    options = StateDictOptions(full_state_dict=full, cpu_offload=full)
    state = {
        "model": get_model_state_dict(model, options=options),
        "optim": get_optimizer_state_dict(model, opt, options=options),
    }
    if not full:
        dcp.save(state, checkpoint_id=path)
    elif world()[0] == 0:
        torch.save(state, path)
    if dist.is_initialized():
        dist.barrier()


def _load(model, opt, path, full):
    options = StateDictOptions(full_state_dict=full and dist.is_initialized())
    if full:
        state = torch.load(path, weights_only=True)
    else:
        state = {"model": get_model_state_dict(model), "optim": get_optimizer_state_dict(model, opt)}
        dcp.load(state, checkpoint_id=path)
    set_model_state_dict(model, state["model"], options=options)
    set_optimizer_state_dict(model, opt, state["optim"], options=options)


class Alone:
    """One process, with the interface of several."""

    def run(self, function, *args, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return [function(*args, **options)]


ROADS = [*((case, "fsdp, alone, fsdp") for case in CASES)]
ROADS += [(CASES[0], "ddp, fsdp of four, ddp"), (CASES[1], "mixed, ddp, fsdp of four")]


@pytest.mark.parametrize("case, road", ROADS, ids=str)
def test_from_processes_to_others_and_back(two, four, tmp_path, case, road):
    solver, estimator, options = case
    case = Case(solver, estimator, "plain", steps=3 * HALF, metric=options)
    unbroken = trained(case)
    found, before = None, None
    for k, place in enumerate(road.split(", ")):
        engine = place.split()[0]
        ranks = Alone() if engine == "alone" else four if "four" in place else two
        here = Case(solver, estimator, "plain" if engine == "alone" else engine, metric=options)
        after = str(tmp_path / str(k))
        found = ranks.run(_part, here, before, after, start=k * HALF)
        before = after
    tolerances = (1e-5, 1e-7) if "basis" in options else (1e-10, 1e-13)  # eigenvectors amplify rounding
    for each in found:
        assert_same(each, unbroken, *tolerances)


@pytest.mark.parametrize("first, second", [("fsdp", "alone"), ("fsdp", "fsdp"), ("mixed", "mixed")])
def test_a_full_state_in_one_file(two, tmp_path, first, second):
    case, file = Case("uw", "full", "plain", steps=2 * HALF), str(tmp_path / "whole.pt")
    found = None
    for k, engine in enumerate((first, second)):
        ranks = Alone() if engine == "alone" else two
        here = Case("uw", "full", "plain" if engine == "alone" else engine)
        found = ranks.run(_part, here, file if k else None, None if k else file, start=k * HALF, full=True)
    for each in found:
        assert_same(each, trained(case), 1e-10, 1e-13)


def _kept(case):
    """Bytes of averages that this process keeps, and all numbers of the parameters."""
    net, model, opt = build(case)
    step(model, opt, case, 0)
    return sum(t.numel() for averages in opt.metric.averages for t in averages.tensors()), sum(
        p.numel() for p in net.parameters()
    )


def test_averages_are_divided_as_the_parameters_are(two):
    """Three objectives: six averages of what is shared, one of each head."""
    first, second = two.run(_kept, Case("uw", "full", "fsdp"))
    heads = 3 * (5 + 1)
    assert first[0] + second[0] == 6 * (first[1] - heads) + heads and 0.3 < first[0] / second[0] < 3
