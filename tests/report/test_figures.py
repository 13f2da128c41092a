import numpy as np
import pytest

from madamoo.report.figures import Series, binned, curves, dots, heat_map, plain


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
    figure = dots("t", [("<i>", 0, [0.1])], ["<a href='http://x'>"], "x")
    assert figure.data[0]["name"] == "&lt;i&gt;"
    assert figure.layout["yaxis"]["ticktext"] == ["&lt;a href='http://x'&gt;"]


def test_a_heat_map_has_no_diagonal():
    figure = heat_map("t", ["a", "b"], [[1.0, -0.4], [-0.4, 1.0]], "")
    assert figure.data[0]["z"] == [[None, -0.4], [-0.4, None]]
    assert (figure.data[0]["zmin"], figure.data[0]["zmax"]) == (-0.4, 0.4)
