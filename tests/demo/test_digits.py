import pytest
import torch

from madamoo.demo import digits, training
from madamoo.demo.contenders import ADAM, CONTROL, MADAM


def test_data_are_reproducible() -> None:
    for one, other in zip(digits.make_data(1), digits.make_data(1), strict=True):
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.labels, other.labels)
    assert not torch.equal(digits.make_data(1)[0].images, digits.make_data(2)[0].images)


def test_no_source_is_in_both_sets() -> None:
    train, test = digits.make_data(0)
    assert (len(train), len(test)) == (digits.TRAIN_PAIRS, digits.TEST_PAIRS)
    assert not set(train.sources.unique().tolist()) & set(test.sources.unique().tolist())
    assert len(test.sources.unique()) <= digits.TEST_SOURCES


def test_images_hold_both_digits() -> None:
    data, _ = digits.make_data(0)
    images, labels = digits._sources()
    left, right = data.sources[:, 0]
    image = data.images[0]
    corner = digits.CANVAS - digits.DIGIT
    assert torch.equal(image[:corner, :corner], images[left][:corner, :corner])
    assert torch.equal(image[-corner:, -corner:], images[right][-corner:, -corner:])
    overlap = torch.maximum(images[left][corner:, corner:], images[right][:corner, :corner])
    assert torch.equal(image[corner : digits.DIGIT, corner : digits.DIGIT], overlap)
    assert data.labels[:, 0].tolist() == [labels[left], labels[right]]
    assert image.min() >= 0 and image.max() <= 1


def test_plan_pairs_every_madam_run_with_an_adam_run() -> None:
    plan = training.plan(2)
    assert len(plan) == len(set(plan))
    for solver, contender, seed in plan:
        assert contender != MADAM or (solver, ADAM, seed) in plan
    assert ("LS", CONTROL, 0) not in plan
    assert ("UW", CONTROL, 1) in plan


@pytest.mark.parametrize("solver", training.SOLVERS)
def test_training_depends_on_the_seed_alone(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small = [digits.Pairs(d.images[:256], d.labels[:, :256], d.sources[:, :256]) for d in digits.make_data(0)]
    monkeypatch.setattr(training, "make_data", lambda seed: small)
    before = torch.random.get_rng_state()
    one, other = (training.train(solver, MADAM, 0, epochs=2) for _ in range(2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert one.accuracy == other.accuracy
    assert len(one.accuracy) == 2 and len(one.accuracy[0]) == len(digits.TASKS)
    assert one.final == pytest.approx(sum(one.accuracy[-1]) / 2)
