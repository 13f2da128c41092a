"""One batch split over processes, against one process on the whole batch."""

from dataclasses import replace

import pytest
import torch

from madamoo import solvers
from madamoo.metric import EigenBasis
from split_batches import Case, assert_same, trained

ESTIMATORS = ("pair", "full", "diagonal", "separable", "marginal", None)
COVER = [("ls", "collapsed"), *((name, ESTIMATORS[k % 6]) for k, name in enumerate(solvers.available()))]
KINDS = [("ls", "collapsed"), ("uw", "full"), ("rlw", "pair"), ("cagrad", "separable"), ("epo", "diagonal")]
ALONE = {}


def check(ranks, case, steps=20):
    """So many steps in float64, and one in float32."""
    for kind, rtol, atol in (
        (replace(case, steps=steps), 1e-10, 1e-13),
        (replace(case, dtype=torch.float32, steps=1), 1e-6, 1e-6),
    ):
        alone = replace(kind, engine="fsdp" if kind.ragged else "plain", ddp={}, no_sync=False, compiled=False)
        if repr(alone) not in ALONE:
            ALONE[repr(alone)] = trained(alone)
        for found in ranks.run(trained, kind):
            assert_same(found, ALONE[repr(alone)], rtol, atol)


@pytest.mark.parametrize("solver, estimator", COVER, ids=str)
def test_every_solver_and_estimator_of_replicas(two, solver, estimator):
    check(two, Case(solver, estimator, "ddp"))


@pytest.mark.parametrize("solver, estimator", COVER, ids=str)
def test_every_solver_and_estimator_on_shards(two, solver, estimator):
    check(two, Case(solver, estimator, "fsdp"), steps=20 if (solver, estimator) in KINDS else 2)


@pytest.mark.parametrize("engine", ["ddp", "fsdp", "mixed"])
@pytest.mark.parametrize("solver, estimator", [("cagrad", "full"), ("graddrop", "separable")])
def test_four_processes(four, solver, estimator, engine):
    check(four, Case(solver, estimator, engine), steps=5)


DDP = [{"find_unused_parameters": True}, {"static_graph": True}, {"gradient_as_bucket_view": True}]
USES = {
    "losses in one tensor": {"form": "stack"},
    "losses without names": {"form": "list"},
    "max_norm": {"options": {"max_norm": 0.1}},
    "clipping": {"clip": 0.5},
    "a scaler": {"scaled": True},
    "accumulation": {"parts": 2},
    "accumulation that sends once": {"parts": 2, "no_sync": True},
    "missing objectives": {"lack": True},
    "missing labels": {"ragged": True},
    "normalised averages": {"metric": {"normalise": True}},
    "the paper's ramp": {"metric": {"ramp": "paper"}},
    "averages of 16 bits": {"metric": {"dtype": torch.bfloat16}},
    "every other step": {"metric": {"every": 2}},
    "the solver's weights on heads": {"options": {"head_weights": "lambda"}},
    "every row": {"options": {"rows": "all"}},
    "another optimizer": {"momentum": True},
}


@pytest.mark.parametrize("settings", DDP, ids=str)
@pytest.mark.parametrize("solver, estimator", KINDS[:4])
def test_what_ddp_can_be_told(two, settings, solver, estimator):
    check(two, Case(solver, estimator, "ddp", ddp=settings), steps=5)


@pytest.mark.parametrize("engine", ["ddp", "fsdp"])
@pytest.mark.parametrize("use", USES)
def test_uses(two, use, engine):
    """With a solver that looks at the gradients, and with one that does not, whose weights are in one backward pass."""
    for solver, estimator in (("cagrad", "separable" if engine == "fsdp" else "full"), ("uw", "marginal")):
        check(two, Case(solver, estimator, engine, **USES[use]), steps=5)


EIGEN = {"basis": EigenBasis(every=2)}


def check_eigenbasis(ranks, case):
    """Alike bit for bit; less close to one process than elsewhere, for eigenvectors amplify rounding."""
    first, *others = ranks.run(trained, case)
    for other in others:
        assert_same(first, other, 0.0)
    assert_same(first, trained(replace(case, engine="plain")), 1e-5, 1e-7)


@pytest.mark.parametrize("engine", ["ddp", "fsdp"])
@pytest.mark.parametrize("estimator", ["collapsed", "full", "separable", "pair", "marginal"])
def test_the_eigenbasis(two, estimator, engine):
    solver = "ls" if estimator == "collapsed" else "uw"
    case = Case(solver, estimator, engine, steps=10, metric=EIGEN)
    check_eigenbasis(two, case)
    in_parts = trained(replace(case, engine="plain", parts=2))  # one process, and as much rounding
    assert_same(in_parts, trained(replace(case, engine="plain")), 1e-5, 1e-7)


@pytest.mark.parametrize("engine", ["fsdp", "mixed"])
def test_the_eigenbasis_of_four_processes(four, engine):
    """With momentum before the metric, some processes have nothing of a head, and gradients come now and then."""
    for estimator in ("full", "separable"):
        check_eigenbasis(four, Case("rlw", estimator, engine, steps=14, metric={**EIGEN, "momentum": 0.9, "every": 3}))


@pytest.mark.parametrize("sides", ["both", "shorter"])
def test_the_eigenbasis_on_shards(two, sides):
    metric = {"basis": EigenBasis(every=2, sides=sides), "momentum": 0.9}
    for use in ({"lack": True}, {"ragged": True}, {"parts": 2}, {"scaled": True}):
        check_eigenbasis(two, Case("cagrad", "separable", "fsdp", steps=8, metric=metric, **use))


@pytest.mark.parametrize("engine", ["ddp", "fsdp"])
def test_single_objectives_measured_now_and_then(two, engine):
    """In between, one backward pass of all, and averages of d alone."""
    for lack in (False, True):
        check(two, Case("rlw", "separable", engine, metric={"every": 3}, lack=lack), steps=8)


def test_auto_measures_the_same_everywhere(two):
    for solver in ("uw", "rlw"):
        check(two, Case(solver, "auto", "ddp"))


def test_a_compiled_replica(two):
    check(two, Case("cagrad", "full", "ddp", compiled=True), steps=3)


def test_sharded_and_replicated_parameters(two):
    check(two, Case("cagrad", "full", "mixed", metric={"normalise": True}, options={"max_norm": 0.1}))


@pytest.mark.parametrize("engine", ["ddp", "fsdp"])
def test_momentum_before_the_metric(two, engine):
    for estimator in ("full", "separable"):
        check(two, Case("rlw", estimator, engine, metric={"momentum": 0.9, "beta": 0.9}), steps=8)
