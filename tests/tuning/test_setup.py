"""What a user brings, right and wrong."""

import random

import numpy as np
import pytest
import torch

from madamoo.tuning import Setup
from madamoo.tuning._setup import as_number, make, open_source, seeded


def setup(**changes):
    w = torch.nn.Parameter(torch.zeros(3))
    return Setup(**{"model": [w], "losses": lambda: [w.sum()], "validate": lambda: 0.0, "steps": 2, **changes})


@pytest.mark.parametrize(
    "change, message",
    [
        ({"model": 3}, "model must be a torch module, or a list of parameters, got int"),
        ({"model": torch.zeros(3)}, "got Tensor"),
        ({"model": []}, "got list"),
        ({"losses": [1.0]}, "losses must be a function, got list"),
        ({"losses": iter([1.0])}, "of an iterator, give its __next__"),
        ({"validate": 0.5}, "validate must be a function, got float"),
        ({"schedule": "cosine"}, "schedule must be a function, got str"),
        ({"steps": 0}, "steps must be an integer, at least 1, got 0"),
        ({"steps": 1.5}, "got 1.5"),
        ({"steps": True}, "got True"),
    ],
)
def test_a_wrong_setup_says_what_would_be_right(change, message):
    with pytest.raises((TypeError, ValueError)) as caught:
        setup(**change)
    assert message in str(caught.value)


def test_the_model_may_be_a_module_parameters_or_groups():
    module = torch.nn.Linear(3, 2)
    groups = [{"params": list(module.parameters())}]
    assert [setup(model=m).size for m in (module, module.parameters(), groups)] == [8, 8, 8]


def test_the_validation_number_may_be_a_tensor_and_must_be_one_number():
    assert as_number(torch.tensor(0.5)) == as_number(np.float32(0.5)) == 0.5
    for wrong, found in ((None, "NoneType"), ("0.5", "str"), (True, "bool"), (torch.zeros(2), r"shape \(2,\)")):
        with pytest.raises(TypeError, match=found):
            as_number(wrong)


def test_seeding_leaves_no_trace():
    def draws():
        return torch.rand(2).tolist(), random.random(), np.random.rand()  # noqa: NPY002

    with seeded(3):
        first = draws()
    states = torch.get_rng_state(), random.getstate()
    with seeded(3):
        assert draws() == first
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1]


@pytest.mark.parametrize(
    "text, message",
    [
        ("def run(seed): ...", "has no build; it has run. It needs a function build(seed)"),
        ("build = 3", "build is int; it must be a function build(seed)"),
        ("def build(): ...", "build() must take one argument, the seed"),
        ("def build(seed, width): ...", "build(seed, width) must take one argument"),
        ("import nothing_of_that_name", "No module named 'nothing_of_that_name'"),
        ("def build(seed)", "SyntaxError"),
        ("def build(seed): ...\nSOLVERS = ['mine']", "SOLVERS must be a dictionary from names to functions"),
    ],
)
def test_a_wrong_file_says_what_would_be_right(text, message, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        open_source(file)
    assert message in str(caught.value) and "mine.py" in str(caught.value)
    assert "importlib" not in str(caught.value)


@pytest.mark.parametrize("name, message", [("no.py", "not there"), (".", "a folder"), ("notes.txt", "no Python file")])
def test_what_is_no_file_of_python_is_refused(name, message, tmp_path):
    (tmp_path / "notes.txt").write_text("build")
    with pytest.raises(ValueError, match=message):
        open_source(tmp_path / name)


def test_build_must_return_a_setup():
    for wrong, found in ((None, "None"), ((1, 2), "a tuple")):
        with pytest.raises(TypeError, match=rf"build\(0\) returned {found}; it must return madamoo.tuning.Setup"):
            make(lambda seed, wrong=wrong: wrong, 0)
