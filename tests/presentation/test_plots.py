import numpy as np
import pytest

from madamoo.presentation.plots import Group, Series, binned, curves, dots, heat_maps, panels, plain, surfaces


def test_bins_are_equal_stretches_that_leave_nothing_out():
    steps, values = list(range(0, 460, 2)), [float(v) for v in np.random.default_rng(0).random(230)]
    x, y = binned(steps, values, bins=20)
    assert len(x) == len(y) == 20
    sizes = [len(part) for part in np.array_split(values, 20)]
    assert max(sizes) - min(sizes) <= 1
    assert np.mean(values) == pytest.approx(np.average(y, weights=np.diff([len(steps) * k // 20 for k in range(21)])))


def test_bins_of_few_steps_are_the_steps():
    assert binned([0, 5], [True, None]) == ([0, 5], [1.0, None])
    assert binned([], []) == ([], [])


def test_a_wide_range_is_logarithmic_and_a_constant_is_no_figure_of_its_rounding():
    def axis(*values, **options):
        return curves("t", [Series("a", range(len(values)), values)], "x", "y", **options).layout["yaxis"]

    assert axis(1.0, 100.0)["type"] == "log"
    assert axis(1.0, 2.0)["type"] == axis(0.0, 100.0)["type"] == axis(1.0, 100.0, zero=True)["type"] == "linear"
    low, high = axis(0.5, 0.5000001)["range"]
    assert low < 0.46 and high > 0.54


def test_names_are_shown_letter_by_letter():
    assert plain("<b>bold</b>") == "&lt;b&gt;bold&lt;/b&gt;"
    assert plain("x" * 40).endswith("…") and len(plain("x" * 40)) == 28
    figure = dots("t", [Group("<i>", 0, [0.1])], ["<a href='http://x'>"], "x")
    assert figure.data[0]["name"] == "&lt;i&gt;"
    assert figure.layout["yaxis"]["ticktext"] == ["&lt;a href='http://x'&gt;"]


def test_heat_maps_have_no_diagonal_and_one_scale():
    names = ["a", "b"]
    one, other = heat_maps({"x": (names, [[1.0, -0.3], [-0.3, 1.0]]), "y": (names, [[1.0, 0.4], [0.4, 1.0]])}, "")
    assert one.data[0]["z"] == [[None, -0.3], [-0.3, None]]
    assert [(f.data[0]["zmin"], f.data[0]["zmax"]) for f in (one, other)] == [(-0.4, 0.4)] * 2


def test_panels_to_be_compared_have_the_scale_that_all_their_values_need():
    small, large = Series("a", [0, 1], [0.1, 0.2]), Series("a", [0, 5], [30.0, None])
    for options in ({}, {"zero": True}, {"percent": True, "log": False}):
        figures = panels({"x": [small], "y": [large]}, "step", "loss", **options)
        axes = [f.layout["yaxis"] for f in figures]
        assert axes[0] == axes[1] and axes[0]["type"] == ("linear" if options else "log")
        low, high = axes[0]["range"]
        ends = (10**low, 10**high) if not options else (low, high)
        assert ends[0] <= 0.1 and ends[1] >= 30.0
        assert figures[0].layout["xaxis"] == figures[1].layout["xaxis"]
        assert figures[0].layout["xaxis"]["range"][1] >= 5
    groups = [Group("g", 0, [0.1]), Group("g", 0, [0.7])]
    drawn = [dots("t", [group], ["a"], "x", percent=True, within=groups).layout["xaxis"]["range"] for group in groups]
    assert drawn[0] == drawn[1] and drawn[0][1] > 0.7


def test_surfaces_stand_upright_on_one_scale_with_gaps():
    values = np.array([[1.0, 2.0, -8.0], [np.nan, 0.123456, 3.0]])  # two places along t, three along x
    parts = {"first": ([0.0, 1.0], [-1.0, 0.0, 1.0], values), "second": ([0.0, 1.0], [-1.0, 0.0, 1.0], values / 2)}
    first, second = surfaces(parts, "t", "<x>", "About.", signed=True)
    trace = first.data[0]
    assert trace["z"] == [[1.0, None], [2.0, 0.1235], [-8.0, 3.0]]  # one row per place along the vertical axis
    assert trace["x"] == [0.0, 1.0] and len(trace["z"]) == len(trace["y"])
    assert first.layout["yaxis"]["title"]["text"] == "&lt;x&gt;" and first.layout["xaxis"]["title"]["text"] == "t"
    assert (trace["zmin"], trace["zmax"]) == (-8.0, 8.0) == (second.data[0]["zmin"], second.data[0]["zmax"])
    (error,) = surfaces({"e": ([0.0], [0.0], np.zeros((1, 1)))}, "t", "x", "", signed=False)
    assert (error.data[0]["zmin"], error.data[0]["zmax"]) == (0.0, 1.0)
