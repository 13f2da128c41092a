import pytest
import torch

from madamoo.bench.training._weights import WeightLog


def test_means_and_movement_over_an_epoch():
    log = WeightLog(2)
    for weights in ([1.0, 1.0], [2.0, 0.0], [0.0, 3.0], [0.0, 1.0]):
        log.add(torch.tensor(weights))
    found = log.take()
    assert found["weights"] == pytest.approx([1.5 / 4, 2.5 / 4])
    assert found["weights_moved"] == pytest.approx((0.5 + 1.0 + 0.0) / 4)
    log.add(torch.tensor([1.0, 0.0]))  # movement does not stop between epochs
    assert log.take() == {"weights": [1.0, 0.0], "weights_moved": 1.0}


def test_constant_zero_and_absent_weights():
    log = WeightLog(2)
    assert log.take() == {"weights": None, "weights_moved": None}
    log.add(None)
    assert log.take()["weights"] is None
    for _ in range(3):
        log.add(torch.tensor([0.25, 0.25]))
    assert log.take()["weights_moved"] == 0.0
    log.add(torch.zeros(2))
    assert log.take()["weights"] == [0.0, 0.0]


def test_its_state_goes_on():
    one, other = WeightLog(2), WeightLog(2)
    one.add(torch.tensor([1.0, 0.0]))
    state = {
        key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in one.state_dict().items()
    }
    other.load_state_dict(state)
    for log in (one, other):
        log.add(torch.tensor([0.0, 1.0]))
    assert one.take() == other.take() == {"weights": [0.5, 0.5], "weights_moved": 0.5}
