"""What identifies a run: checked, named, and the same after a way through JSON."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from madamoo.bench import configure, get
from madamoo.bench.training import reductions


def test_what_is_not_given_comes_from_the_profile():
    config = configure("Digits")
    assert asdict(config) == {
        "benchmark": "digits",
        "profile": "cpu",
        "solver": "ls",
        "optimizer": "madam",
        "lr": 3e-3,
        "seed": 0,
        "epochs": 20,
        "batch": 64,
        "model": "mlp:depth=2:width=128",
        "schedule": "cosine",
    }
    given = configure("digits", profile="paper", lr=2, epochs=1, batch=9, model="mlp", seed=-3)
    assert (given.lr, given.epochs, given.batch, given.model, given.seed) == (2.0, 1, 9, "mlp", -3)


def test_what_cannot_be_run_is_refused_in_words():
    for wrong, said in (
        ({"benchmark": "nope"}, r"no benchmark is called 'nope'; there are .*digits"),
        ({"profile": "huge"}, "profile 'huge': digits has the profiles paper, cpu"),
        ({"solver": "nope"}, r"no solver is called 'nope'; there are .*cagrad"),
        ({"solver": "cagrad:foo=1"}, r"solver 'cagrad:foo=1': cagrad has no option 'foo'; it has c"),
        ({"solver": "cagrad:c=abc"}, "solver 'cagrad:c=abc': c must be a number, got 'abc'"),
        ({"solver": "restless:foo=1"}, "restless has no option 'foo'"),
        ({"optimizer": "lion"}, r"no optimizer is called 'lion'; there are adam, sgd"),
        ({"optimizer": "adam:foo=1"}, "optimizer 'adam:foo=1': adam has no option 'foo'"),
        ({"optimizer": "madam:rampup=abc"}, "rampup must be a number, got 'abc'"),
        ({"optimizer": "madam:beta1=[1]"}, r"beta1 must be a number, got \[1\]"),
        ({"optimizer": "marginal:estimator=pair"}, "marginal has no option 'estimator'"),
        ({"optimizer": "mtadam", "solver": "uw"}, "runs with solver ls alone"),
        ({"lr": 0.0}, "learning rate must be positive"),
        ({"lr": float("nan")}, "learning rate must be positive"),
        ({"lr": float("inf")}, "learning rate must be positive"),
        ({"epochs": 0}, "epochs 0: it must be at least 1"),
        ({"batch": -1}, "batch -1: it must be at least 1"),
    ):
        with pytest.raises(ValueError, match=said):
            configure(**{"benchmark": "digits", **wrong})


def test_the_same_run_written_in_two_ways_is_one():
    one = configure("digits", solver="CAGrad:c=0.40", optimizer="madam:rampup=5:eps=1e-3", lr=1e-3)
    other = configure("digits", solver="cagrad:c=.4", optimizer="MAdam:eps=0.001:rampup=5", lr=0.001)
    assert one == other and one.name == other.name and one.differences(asdict(other)) == []


@pytest.mark.parametrize("lr", [1e-3, 3e-5, 0.1 + 0.2, 1, 2.5e-17])
def test_a_configuration_is_the_same_after_json(lr):
    config = configure("digits", lr=lr, solver="ls:weights=(0.25, 0.75)", seed=-5)
    read = json.loads(json.dumps(asdict(config)))
    assert config.differences(read) == []


def test_differences_are_told_key_by_key():
    config = configure("digits")
    other = {**asdict(config), "lr": 0.5, "extra": 1}
    del other["seed"]
    assert config.differences(other) == ["extra 1, not None", "lr 0.5, not 0.003", "seed None, not 0"]


def test_every_configuration_has_its_own_folder():
    base = configure("digits")
    changed = [
        replace(base, solver="uw"),
        replace(base, optimizer="adam"),
        replace(base, lr=1e-3 + 1e-12),  # the same to six digits
        replace(base, seed=1),
        replace(base, epochs=21),
        replace(base, batch=65),
        replace(base, model="mlp"),
        replace(base, profile="paper"),
    ]
    assert len({c.folder(Path("x")) for c in [base, *changed]}) == 9


@pytest.mark.parametrize(
    "changes",
    [
        {"solver": "ls:weights=(0.5, 0.5)", "optimizer": "madam:ramp=../../etc"},
        {"benchmark": "../my data/bench mark.py"},
        {"benchmark": "/" + "deep/" * 100 + "mine.py"},
        {"solver": "ls:weights=(" + "0.123456789, " * 40 + "1)"},
        {"model": "äöü/\n.py"},
    ],
    ids=["odd letters", "relative", "deep", "long", "not in the name"],
)
def test_folder_names_are_plain_whatever_the_specs(tmp_path, changes):
    folder = replace(configure("digits"), **changes).folder(tmp_path)
    assert folder.parent.parent == tmp_path
    for part in folder.relative_to(tmp_path).parts:
        assert part not in (".", "..") and not part.startswith("-")
        assert len(part.encode()) <= 255 and set(part) < set(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-"
        )
    folder.mkdir(parents=True)  # the file system agrees


def test_reductions_tell_what_was_chosen_besides_the_profile():
    profile = get("digits").profiles["cpu"]
    assert reductions(configure("digits"), profile) == list(profile.reductions)
    *given, chosen = reductions(configure("digits", epochs=3), profile)
    assert given == list(profile.reductions) and chosen == f"epochs 3, not the profile's {profile.epochs}"
