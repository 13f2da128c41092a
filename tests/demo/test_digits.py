import pytest
import torch

from madamoo.bench.problems.supervised.digits import Digits
from madamoo.demo import digits
from madamoo.demo.figures import front_slider, mean_front
from madamoo.pareto import PaMaL

MSOAP = "MSOAP"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch):
    whole = Digits().load(None, digits.PROFILE, 0)
    small = type(whole)(whole.train[:256], whole.validation[:64], whole.test[:200])
    monkeypatch.setattr(Digits, "load", lambda *_: small)
    return small


def test_the_front_and_the_slider_are_what_the_trained_network_gives(few, monkeypatch: pytest.MonkeyPatch) -> None:
    models = []
    monkeypatch.setattr(digits, "PaMaL", lambda *args, **kw: models.append(PaMaL(*args, **kw)) or models[-1])
    run = digits.train_front(MSOAP, 1e-2, 0, epochs=2)
    slider = front_slider([run])
    positions = len(slider.positions)
    assert positions == digits.RAYS
    for k, share in ((0, 1.0), (5, 0.75), (positions - 1, 0.0)):
        plain = models[0].export([share, 1 - share])  # independent of the preference's own path through the model
        outputs = zip(plain(few.test.inputs), few.test.targets, strict=True)
        read = [(z.argmax(1) == y).double().mean() * 100 for z, y in outputs]
        dot, bars = ([slider.positions[k][axis][trace] for axis in "xy"] for trace in (0, 1))
        assert [dot[0][0], dot[1][0]] == pytest.approx([float(x) for x in read])
        assert bars[1] == pytest.approx([float(x) for x in read])
        assert f"{100 * share:.0f} % left" in slider.texts[k] and f"{float(read[0]):.1f}" in slider.texts[k]
    assert list(slider.traces) == [1, 2]  # of three: the line stays


def test_the_slider_shows_the_mean_over_seeds_at_the_chosen_rate(make_results) -> None:
    runs = make_results(gain=5.0).fronts
    fronts = mean_front(runs, MSOAP)
    assert fronts[0] == pytest.approx([75.1, 65.1]) and fronts[-1] == pytest.approx([65.1, 75.1])
    slider = front_slider(runs)
    where = digits.FRONT_CONTENDERS.index(MSOAP)
    assert slider.positions[0]["x"][where] == pytest.approx([75.1])
    assert slider.positions[slider.start]["y"][where] == pytest.approx([70.1])


def test_runs_depend_on_the_seed_alone_and_leave_torchs_generator_as_it_was(few) -> None:
    before = torch.random.get_rng_state()
    one, other = (digits.train_front("SOAP", 1e-2, 0, epochs=1) for _ in range(2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(one.front.points, other.front.points) and one.score == other.score
    plain, again = (digits.train_plain("MAdam", 1e-2, 1, epochs=1) for _ in range(2))
    assert plain.accuracy == again.accuracy
    assert 0 < one.hypervolume < 1


def test_hypervolume_is_the_area_below_the_front(make_results) -> None:
    run = make_results(gain=0.0, seeds=1).fronts[0]
    read = run.front.points / 100
    steps = sorted(read.tolist())
    area = sum((x - before) * y for (x, y), (before, _) in zip(steps, [(0.0, 0.0), *steps[:-1]], strict=True))
    assert run.hypervolume == pytest.approx(area)
