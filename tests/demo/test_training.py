import pytest
import torch

from madamoo.bench.problems.supervised.digits import Digits
from madamoo.demo import training
from madamoo.presentation.style import ADAM, CONTROL, MADAM


def test_plan_pairs_every_madam_run_with_an_adam_run() -> None:
    plan = training.plan(2)
    assert len(plan) == len(set(plan))
    for solver, contender, seed in plan:
        assert contender != MADAM or (solver, ADAM, seed) in plan
    assert ("LS", CONTROL, 0) not in plan
    assert ("UW", CONTROL, 1) in plan


def test_training_depends_on_the_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Digits().load(None, training.PROFILE, 0)
    small = type(whole)(whole.train[:256], whole.validation[:64], whole.test[:256])
    monkeypatch.setattr(Digits, "load", lambda *_: small)
    before = torch.random.get_rng_state()
    one, other = (training.train("CAGrad", MADAM, 0, epochs=2) for _ in range(2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert one.accuracy == other.accuracy
    assert len(one.accuracy) == 2 and len(one.accuracy[0]) == 2
    assert one.final == pytest.approx(sum(one.accuracy[-1]) / 2)
