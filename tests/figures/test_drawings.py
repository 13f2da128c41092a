"""The files that are drawn; what is in the figures is for eyes."""

from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from madamoo.figures import drawings
from madamoo.figures.claims import SHOWN
from madamoo.figures.experiments import COARSE, FIXED, RATE, STARTS, STEPS, gap, optimum
from madamoo.presentation.pictures import save
from madamoo.presentation.style import ADAM, MADAM

BEGINNINGS = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}


@pytest.fixture(scope="module")
def paths():
    """Straight ways to the optimum, at all rates; MAdam goes all of it, Adam half."""
    way = np.linspace(0, 1, STEPS + 1)[:, None, None]
    found = {}
    for preference in FIXED:
        step = optimum(preference) - np.array(STARTS)
        found[preference] = {
            v: np.broadcast_to(STARTS + share * way * step, (len(COARSE), STEPS + 1, 3, 2))
            for v, share in ((ADAM, 0.5), (MADAM, 1.0))
        }
    return found


def test_the_same_figure_gives_the_same_file(tmp_path):
    for format in BEGINNINGS:
        check_twice(tmp_path, format)


def check_twice(tmp_path, format):
    for folder in ("one", "two"):
        figure = Figure(figsize=(2, 2))
        drawings._landscape(figure.subplots(), FIXED[0], (-2.0, 2.0), (-1.0, 3.0))
        save(figure, tmp_path / folder / f"figure.{format}")
    content = (tmp_path / "one" / f"figure.{format}").read_bytes()
    assert content.startswith(BEGINNINGS[format])
    assert content == (tmp_path / "two" / f"figure.{format}").read_bytes()


def test_panels_are_annotated_with_the_mean_distances(paths, tmp_path):
    root = ElementTree.parse(save(drawings.trajectories(paths), tmp_path / "figure.svg")).getroot()
    text = " ".join("".join(root.itertext()).split())
    assert RATE in COARSE
    for preference in FIXED:
        whole = np.linalg.norm(np.array(STARTS) - optimum(preference), axis=1).mean()
        for steps in SHOWN:
            assert f"A {whole * (1 - 0.5 * steps / STEPS):.3f} | M {whole * (1 - steps / STEPS):.3f}" in text


def test_landscape_is_the_level_sets_of_the_loss():
    axes = Figure().subplots()
    drawings._landscape(axes, FIXED[0], (-2.0, 2.0), (-1.0, 3.0))
    assert len(axes.patches) == 8
    for ellipse in axes.patches:
        rim = ellipse.get_patch_transform().transform([(1, 0), (0, 1), (-1, 0), (0.6, -0.8)])
        assert np.ptp(gap(rim, FIXED[0])) < 1e-9
    corners = [(x, y) for x in (-2.0, 2.0) for y in (-1.0, 3.0)]
    assert gap(np.array(corners), FIXED[0]).max() == pytest.approx(
        gap(axes.patches[0].get_patch_transform().transform((1, 0)), FIXED[0])
    )
