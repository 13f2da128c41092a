"""Options: in text, by name of the objective, in the repr, and errors that name the option and its value."""

import pytest
import torch

from madamoo import solvers
from madamoo.solvers import Solver, parse

NAMES = ("cls", "reg", "aux")
GIVEN = {
    "ls": ("weights", {"cls": 1.0, "reg": 0.1, "aux": 2.0}),
    "alignedmtl": ("weights", {"cls": 1.0, "reg": 0.1, "aux": 2.0}),
    "upgrad": ("weights", {"cls": 1.0, "reg": 0.1, "aux": 2.0}),
    "dualproj": ("weights", {"cls": 1.0, "reg": 0.1, "aux": 2.0}),
    "preference": ("default", {"cls": 0.7, "reg": 0.1, "aux": 0.2}),
    "tchebycheff": ("default", {"cls": 0.7, "reg": 0.1, "aux": 0.2}),
    "smoothtchebycheff": ("ideal", {"cls": -0.7, "reg": 0.1, "aux": 0.2}),
    "famo": ("min_losses", {"cls": -1.0, "reg": 0.1, "aux": 0.0}),
    "graddrop": ("leak", {"cls": 1.0, "reg": 0.1, "aux": 0.5}),
    "uw": ("kinds", {"cls": "classification", "reg": "regression", "aux": "regression"}),
}
BY_NAME = pytest.mark.parametrize("name", GIVEN)


def shuffled(option):
    return {name: option[name] for name in ("aux", "cls", "reg")}


def step(solver, seed=0):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    losses = torch.rand(3, generator=generator, dtype=torch.float64)
    weights = solver.solve(losses, rows @ rows.T if solver.needs_gram else None)
    return torch.cat([weights, solver.masks(rows, [0, 1, 2]).flatten()]) if solver.per_coordinate else weights


# -- one value per objective -------------------------------------------------------------------------------------------


@BY_NAME
def test_by_name_is_by_position_in_the_order_of_the_names(name):
    option, values = GIVEN[name]
    named = solvers.get(name, **{option: shuffled(values)})
    listed = solvers.get(name, **{option: [values[n] for n in NAMES]})
    named.name_objectives(NAMES, ordered=False)
    listed.name_objectives(NAMES, ordered=True)
    plain = solvers.get(name)
    found = [[step(solver, seed) for seed in range(4)] for solver in (named, listed, plain)]
    assert all(torch.equal(a, b) for a, b in zip(found[0], found[1], strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(found[0], found[2], strict=True))  # the option does something


@BY_NAME
def test_what_is_resolved_is_in_the_state_dict(name):
    option, values = GIVEN[name]
    old = solvers.get(name, **{option: values})
    old.name_objectives(NAMES, ordered=False)
    step(old)
    new = solvers.get(name, **{option: shuffled(values)})
    new.load_state_dict(old.state_dict())
    assert new.objective_names == NAMES
    new.name_objectives(NAMES, ordered=True)
    assert torch.equal(step(old, 1), step(new, 1))


@BY_NAME
def test_what_does_not_fit_is_refused(name):
    option, values = GIVEN[name]
    wrong = {("lid" if key == "aux" else key): value for key, value in values.items()}
    solver = solvers.get(name, **{option: wrong})
    with pytest.raises(ValueError, match=rf"{option} must name each objective: missing 'aux', unknown 'lid'; .*'reg'"):
        solver.name_objectives(NAMES, ordered=True)
    with pytest.raises(ValueError, match=rf"{option} is given by name .* the losses have no names"):
        solvers.get(name, **{option: values}).ensure(3)
    with pytest.raises(ValueError, match=rf"{option} is given by position.*{option}={{'cls': \.\.\..*objectives=\["):
        solvers.get(name, **{option: list(values.values())}).name_objectives(NAMES, ordered=False)
    with pytest.raises(ValueError, match=f"{option} must have 2 entries, one per objective"):
        solvers.get(name, **{option: list(values.values())}).ensure(2)


def test_rays_by_name():
    rays = [{"b": 0.2, "a": 0.8}, {"a": 0.5, "b": 0.5}]
    named, listed = solvers.ParetoMTL(rays), solvers.ParetoMTL([[0.8, 0.2], [0.5, 0.5]])
    named.name_objectives(("a", "b"), ordered=False)
    losses, gram = torch.tensor([1.0, 3.0], dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    assert torch.equal(named.solve(losses, gram), listed.solve(losses, gram))
    with pytest.raises(ValueError, match=r"rays\[0\] is given by position"):
        solvers.ParetoMTL([[0.8, 0.2]]).name_objectives(("a", "b"), ordered=False)


def test_names_are_those_of_one_training():
    solver = solvers.UW()
    solver.name_objectives(("a", "b"), ordered=False)
    solver.name_objectives(("a", "b"), ordered=True)
    with pytest.raises(ValueError, match=r"UW was set up for the objectives \('a', 'b'\), got \('b', 'a'\)"):
        solver.name_objectives(("b", "a"), ordered=True)
    solver = solvers.UW()
    solver.ensure(3)
    with pytest.raises(ValueError, match="UW was set up for 3 objectives, got 2: 'a', 'b'"):
        solver.name_objectives(("a", "b"), ordered=True)


# -- text, repr, options() ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("CAGrad", ("cagrad", {})),
        ("cagrad:c=0.2", ("cagrad", {"c": 0.2})),
        ("x:a=1,b=two:c=None", ("x", {"a": 1, "b": "two", "c": None})),
        ("x:a = 1, b = true", ("x", {"a": 1, "b": True})),
        ("ls:weights={'a': 1, 'b': 2},x=[1, 2]", ("ls", {"weights": {"a": 1, "b": 2}, "x": [1, 2]})),
        ("mlp:hidden=64,64:activation=tanh", ("mlp", {"hidden": (64, 64), "activation": "tanh"})),
        ("x:path='a:b,c=1'", ("x", {"path": "a:b,c=1"})),
    ],
)
def test_parse(text, wanted):
    assert parse(text) == wanted


@pytest.mark.parametrize("text", ["cagrad:c", "cagrad:=1", "cagrad:", "cagrad:c=1:c=2", "cagrad:0c=1"])
def test_text_of_another_form_is_refused(text):
    with pytest.raises(ValueError, match=f"{text!r}"):
        parse(text)


def test_get():
    for solver in (solvers.get("cagrad:c=0.2"), solvers.get("CAGrad", c=0.2)):
        assert isinstance(solver, solvers.CAGrad) and solver.c == 0.2 and repr(solver) == "CAGrad(c=0.2)"
    solver = solvers.get("nashmtl:max_norm=none", update_every=3)
    assert solver.max_norm is None and solver.update_every == 3
    assert solver.options() == {"max_norm": None, "update_every": 3}
    assert repr(solver) == "NashMTL(max_norm=None, update_every=3)"


WRONG = {
    "cagrad:c=abc": "c must be zero or positive and finite, got 'abc'",
    "cagrad:c=none": "c must be zero or positive and finite, got None",
    "cagrad:c=true": "c must be zero or positive and finite, got True",
    "dwa:window=1.5": "window must be an integer, at least 1, got 1.5",
    "pcgrad:seed=x": "seed must be an integer, got 'x'",
    "gradvac:beta=x": "beta must be at least 0 and below 1, got 'x'",
    "preference:normalise=perhaps": "normalise must be True or False, got 'perhaps'",
    "ls:weights=abc": "weights must be a vector with one number per objective, got 'abc'",
    "ls:weights={'a': -1}": "weights must be finite and not negative, got [-1.0]",
    "graddrop:leak=[2]": "leak must hold numbers in [0, 1], got [2.0]",
    "uw:kinds=3": "kinds must be a string, or one string per objective, got 3",
    "uw:kinds=['x']": "kinds must be one of 'regression', 'classification', got 'x'",
    "paretomtl:rays=3": "rays must be a sequence of preference vectors, at least one, got 3",
    "rotograd:n_objectives=two": "n_objectives must be an integer, at least 1, got 'two'",
    "famo:min_losses=[[0]]": "min_losses must be a vector with one number per objective, got [[0.0]]",
}


def test_a_wrong_value_names_option_and_value():
    for spec, message in WRONG.items():
        with pytest.raises(ValueError) as error:  # noqa: PT011
            solvers.get(spec)
        assert str(error.value) == f"cannot build the solver {spec!r}: {message}"


def test_unknown_names_and_options_are_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="'cagard'") as error:
        solvers.get("cagard")
    assert all(name in str(error.value) for name in solvers.available())
    for text, options in (("cagrad", {"alpha": 0.4}), ("cagrad:alpha=0.4", {})):
        with pytest.raises(TypeError, match=r"CAGrad has no option 'alpha'; it has c"):
            solvers.get(text, **options)
    with pytest.raises(TypeError, match="CAGrad: c given twice"):
        solvers.get("cagrad:c=0.1", c=0.2)


def test_options_of_subclasses_and_of_classes_without_a_constructor():
    class Deep(solvers.CAGrad):
        def __init__(self, radius, *, names=(), **more):
            super().__init__(c=radius / 2)

    solver = Deep(0.5, names=("a", "b"), other=torch.ones(2))
    assert solver.options() == {"radius": 0.5, "names": ["a", "b"], "other": [1.0, 1.0]}
    assert repr(solver) == "Deep(radius=0.5, names=['a', 'b'], other=[1.0, 1.0])"
    assert solvers.IMTLG().options() == {} and repr(solvers.IMTLG()) == "IMTLG()"
    assert repr(solvers.LS({"cls": 1.0})) == "LS(weights={'cls': 1.0})" and repr(solvers.LS()) == "LS()"
    found = solver.options()
    found["names"].append("c")
    assert solver.options()["names"] == ["a", "b"]  # a copy


# -- statistics of the gradients ---------------------------------------------------------------------------------------


class Statistical(Solver):
    """1 / max |g|, looked at every second step only; remembers in between."""

    row_statistics = ("max_abs", "block_norms")
    per_objective = ("kept", "waiting")

    def setup(self, n_objectives):
        self.register_buffer("kept", torch.ones(n_objectives, dtype=torch.float64))
        self.register_buffer("waiting", torch.zeros(n_objectives, dtype=torch.int64))

    @property
    def wants_rows(self):
        return self.n_objectives is None or not bool(self.waiting.all())

    def weights(self, losses, gram=None, preference=None, *, max_abs=None, block_norms=None):
        if max_abs is not None:
            assert block_norms.shape == (len(losses), 2) and gram is None
            self.kept, self.waiting = 1 / max_abs, torch.full_like(self.waiting, 2)
        self.waiting = self.waiting - 1
        return self.kept.to(losses)


def test_declared_statistics_arrive_for_the_objectives_that_are_present():
    solver = Statistical()
    assert solver.needs_rows and solver.wants_rows and not solver.needs_gram
    statistics = {
        "max_abs": torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64),
        "mean_abs": torch.zeros(3),
        "block_norms": torch.ones(3, 2),
    }
    losses = torch.ones(3, dtype=torch.float64)
    assert solver.solve(losses, statistics=statistics, present=[0, 2]).tolist() == [1.0, 0.0, 0.25]
    assert solver.wants_rows  # the second objective has not been looked at
    assert solver.solve(losses, statistics=statistics).tolist() == [1.0, 0.5, 0.25]
    assert not solver.wants_rows and solver.needs_rows
    assert solver.solve(losses).tolist() == [1.0, 0.5, 0.25] and solver.wants_rows
    with pytest.raises(ValueError, match=r"Statistical needs max_abs of the gradients: solve\(.*'max_abs': \.\.\."):
        solver.solve(losses, statistics={"block_norms": torch.ones(3, 2)})


def test_unknown_statistics_are_refused_at_construction():
    class Unknown(Solver):
        row_statistics = ("max_abs", "median")

    with pytest.raises(ValueError, match=r"Unknown\.row_statistics names 'median'; there are 'max_abs', 'mean_abs', "):
        Unknown()


def test_nash_mtl_needs_no_gradients_between_its_updates():
    solver, reference = (solvers.NashMTL(None, update_every=3) for _ in range(2))
    limited = solvers.NashMTL(1.0, update_every=3)
    generator = torch.Generator().manual_seed(0)
    wanted = []
    for _ in range(7):
        rows = torch.randn(3, 5, generator=generator, dtype=torch.float64)
        losses, gram = torch.ones(3, dtype=torch.float64), rows @ rows.T
        wanted.append(solver.wants_rows)
        found = solver.solve(losses, gram if solver.wants_rows else None)
        assert torch.equal(found, reference.solve(losses, gram))
        limited.solve(losses, gram)
        assert limited.wants_rows
    assert wanted == [True, False, False, True, False, False, True]
