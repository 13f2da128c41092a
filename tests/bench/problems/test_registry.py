import pytest
import torch

import toy_benchmark
from madamoo.bench import Benchmark, available, available_models, build_model, get

TOY = toy_benchmark.__file__


def test_each_benchmark_is_complete():
    assert {"digits", "multimnist", "sarcos", "sarcos-small", "mulan/enb"} <= set(available())
    for name in available():
        problem = get(name)
        assert problem.name == name and len(problem.kinds) == len(problem.objectives) >= 2
        assert set(problem.kinds) <= {"regression", "classification"}
        assert {"cpu", "paper"} <= set(problem.profiles)
        assert not problem.profiles["paper"].reductions, "the paper's size is not a reduced one"
        assert problem.primary is problem.metrics[0]
        if name in ("segmentation", "superresolution"):  # a user's own data
            assert problem.source is None and problem.state(None).startswith("your own")
        else:
            assert problem.source and problem.source.licence
            assert problem.source.address.startswith("http") or problem.source.address == "not stated"


def test_names_are_read_in_any_case_and_unknown_ones_refused():
    assert get("MultiMNIST").name == "multimnist"
    with pytest.raises(ValueError, match=r"no benchmark is called 'nope'; there are .*digits.*sarcos"):
        get("nope")
    with pytest.raises(ValueError, match=r"no model is called 'nope'; there are .*lenet.*mlp"):
        build_model("nope", (3,), (1,))
    assert {"mlp", "lenet"} <= set(available_models())


def test_a_users_file_gives_a_benchmark_and_a_model():
    problem = get(TOY)
    assert isinstance(problem, Benchmark) and problem.name == "toy"
    model = build_model(f"{TOY}:width=7:share=0.0", (3,), (1, 2))
    assert [tuple(z.shape) for z in model(torch.zeros(5, 3))] == [(5, 1), (5, 2)]
    assert model.trunk[0].out_features == 7


def test_a_path_keeps_its_capitals(tmp_path):
    file = tmp_path / "My Model.py"
    file.write_text("from torch import nn\n\ndef build(inputs, outputs):\n    return nn.Identity()\n")
    assert isinstance(build_model(str(file), (3,), (1,)), torch.nn.Identity)


def test_a_users_file_hides_no_module(tmp_path):
    import random

    (tmp_path / "random.py").write_text("BENCHMARKS = {'a': dict}\n")
    get(str(tmp_path / "random.py"))
    import random as again

    assert again is random


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "must have BENCHMARKS = .* with one benchmark, got 0"),
        ("BENCHMARKS = {}", "got 0"),
        ("BENCHMARKS = {'a': dict, 'b': dict}", "got 2"),
    ],
)
def test_a_file_without_its_one_benchmark_is_refused_in_words(tmp_path, text, said):
    (tmp_path / "own.py").write_text(text)
    with pytest.raises(ValueError, match=said):
        get(str(tmp_path / "own.py"))


def test_a_file_that_is_not_there_or_builds_nothing_is_refused_in_words(tmp_path):
    with pytest.raises(ValueError, match=r"there is no file .*none\.py"):
        get(str(tmp_path / "none.py"))
    (tmp_path / "own.py").write_text("")
    with pytest.raises(ValueError, match="must have a function build"):
        build_model(str(tmp_path / "own.py"), (3,), (1,))
    with pytest.raises(ValueError, match=r"model 'mlp:wdith=3': mlp has no option 'wdith'; it has width, depth"):
        build_model("mlp:wdith=3", (3,), (1,))
