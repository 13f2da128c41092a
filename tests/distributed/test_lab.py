"""``torchrun ... madamoo run``: one run on several processes, with the record of one."""

import json
from pathlib import Path

import pytest

from madamoo.bench.training import configure, train
from madamoo.gradients import Processes


def _run(folder, **options):
    config = configure("digits", profile="cpu", epochs=1, **options)
    return train(config, Path(folder), processes=Processes.of(None), threads=1)


@pytest.mark.parametrize("options", [{"solver": "uw", "optimizer": "madam"}, {"solver": "cagrad", "optimizer": "adam"}])
def test_the_record_of_one(two, tmp_path, options):
    alone = _run(tmp_path / "alone", **options)
    first, second = two.run(_run, str(tmp_path / "two"), **options)
    assert first["metrics"] == second["metrics"] == pytest.approx(alone["metrics"], rel=1e-3)
    assert first["validation_loss"] == pytest.approx(alone["validation_loss"], rel=1e-4)
    assert first["environment"]["processes"] == 2 and first["steps"] == alone["steps"] and first.keys() == alone.keys()
    written = json.loads((tmp_path / "two" / "run.json").read_text())
    assert written["metrics"] == first["metrics"]
    again, _ = two.run(_run, str(tmp_path / "two"), **options)  # nothing is left to do
    assert again == json.loads((tmp_path / "two" / "run.json").read_text())


@pytest.mark.parametrize("options", [{"optimizer": "mtadam"}, {"solver": "pamal"}])
def test_what_one_process_has_to_do(two, tmp_path, options):
    for error in two.outcomes(_run, str(tmp_path / "two"), **options):
        assert isinstance(error, ValueError) and "in one process, not in 2" in str(error)
    assert not (tmp_path / "two").exists()
