import json
import re
import struct
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import torch

from madamoo.pareto import Front, draw_fronts, rays, single_point

RNG = np.random.default_rng(0)


def fronts(k, maximise=False, names=("PaMaL", "PaLoRA & <MAdam>")):
    a = rays(2, 11) if k == 2 else rays(3, 15) if k == 3 else rays(k, k + 1)
    return {name: Front(a, RNG.random((len(a), k)), maximise, [f"loss <{i}>" for i in range(k)]) for name in names}


def traces(path):
    """What the page hands to plotly."""
    text = path.read_text(encoding="utf-8")
    (figure,) = json.loads(re.search(r'id="figures">(.*?)</script>', text)[1])
    return figure["data"]


def test_pictures_are_valid(tmp_path):
    for k in (2, 3, 7):
        path = draw_fronts(fronts(k), tmp_path / "deep" / f"{k}.svg", reference=[1.0] * k, title="A title")
        text = " ".join(ElementTree.parse(path).getroot().itertext())
        assert "A title" in text and "PaLoRA & <MAdam> (HV" in text and "loss <0>" in text
    content = draw_fronts(fronts(2), tmp_path / "front.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n") and content.endswith(b"IEND\xaeB`\x82")
    width, height = struct.unpack(">II", content[16:24])
    assert width > 800 and height > 600
    content = draw_fronts(fronts(4), tmp_path / "front.pdf").read_bytes()
    assert content.startswith(b"%PDF-") and content.rstrip().endswith(b"%%EOF")


def test_pages_need_no_network(tmp_path):
    for k in (2, 3, 7):
        path = draw_fronts(fronts(k), str(tmp_path / f"{k}.html"), title="A <title>")
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"<(?:script|link|iframe)\b[^>]*(?:src|href)\s*=", text)
        assert "default-src 'none'" in text and "plotly.js v" in text  # the library is inside
        # Names are text, not markup.
        assert any(trace["name"].startswith("PaLoRA &amp; &lt;MAdam&gt;") for trace in traces(path))
        assert "<h1>A &lt;title&gt;</h1>" in text


@pytest.mark.parametrize("maximise", [False, True])
def test_line_runs_through_the_non_dominated_points(tmp_path, maximise):
    points = [[4.5, 4.5], [4.0, 1.0], [1.0, 5.0], [3.0, 4.0], [2.0, 3.0]]
    front = Front(rays(2, 5), points, maximise, ["a", "b"])
    faint, line = traces(draw_fronts({"run": front}, tmp_path / "a.html", reference=[0 if maximise else 6] * 2))
    kept = [[1.0, 5.0], [4.5, 4.5]] if maximise else [[1.0, 5.0], [2.0, 3.0], [4.0, 1.0]]
    assert list(map(list, zip(line["x"], line["y"], strict=True))) == kept  # sorted
    assert sorted(zip(faint["x"], faint["y"], strict=True)) == sorted(tuple(p) for p in points if p not in kept)
    assert line["mode"] == "lines+markers" and faint["mode"] == "markers"
    assert faint["opacity"] < 0.5 < line["opacity"]
    assert faint["marker"]["color"] == line["marker"]["color"]
    assert not faint["showlegend"] and line["showlegend"]
    expected = 1 * 5 + 3.5 * 4.5 if maximise else 1 * 1 + 2 * 3 + 2 * 5
    assert line["name"] == f"run (HV {expected:.4g})"
    assert "preference 0.5, 0.5<br>a 1<br>b 5" in line["text"][0]


def test_points_in_space(tmp_path):
    given = fronts(3, names=["one", "two"])
    found = traces(draw_fronts(given, tmp_path / "a.html"))
    assert {t["type"] for t in found} == {"scatter3d"}
    for name, front in given.items():
        own = [t for t in found if t["name"] == name and t["mode"] == "markers"]
        drawn = [point for t in own for point in zip(t["x"], t["y"], t["z"], strict=True)]
        np.testing.assert_allclose(sorted(drawn), sorted(front.points.tolist()))
    colours = {t["name"]: t["marker"]["color"] for t in found if t["mode"] == "markers"}
    assert colours["one"] != colours["two"]


@pytest.mark.parametrize("maximise", [[False] * 4, [True, False, True, False]])
def test_parallel_axes_have_the_better_end_on_top(tmp_path, maximise):
    points = torch.tensor([[1.0, 10.0, 5.0, 2.0], [2.0, 30.0, 5.0, 1.0], [4.0, 20.0, 5.0, 9.0]])
    front = Front(rays(4, 5)[:3], points, maximise)
    found = traces(draw_fronts({"run": front}, tmp_path / "a.html"))
    rows = sorted(tuple(t["y"][k : k + 4]) for t in found for k in range(0, len(t["y"]), 5))
    share = torch.tensor([[0, 0, 0, 1 / 8], [1 / 3, 1, 0, 0], [1, 1 / 2, 0, 1]])
    share = torch.where(torch.tensor(maximise), share, 1 - share)
    share[:, 2] = 0.5  # all equal
    np.testing.assert_allclose(rows, sorted(map(tuple, share.tolist())), atol=1e-6)


def small_and_degenerate_fronts(tmp_path, k, kind):
    one = rays(2, 2)[:1] if k == 2 else torch.eye(k)[:1]
    for points in (torch.ones(1, k), torch.zeros(4, k)):
        front = Front(one.expand(len(points), -1), points)
        assert draw_fronts({"_hidden": front, "other": front}, tmp_path / f"a.{kind}").stat().st_size > 1000
    # three metrics of two objectives: no surface, but points
    draw_fronts({"run": Front(rays(2, 5), RNG.random((5, k)))}, tmp_path / f"b.{kind}")


def test_small_and_degenerate_fronts(tmp_path):
    for k in (2, 3, 5):
        for kind in ("svg", "html"):
            small_and_degenerate_fronts(tmp_path, k, kind)


def test_a_front_of_one_point_says_so(tmp_path):
    best = [[1.0, 1.0], [1.0, 1.0], [2.0, 3.0]]
    one, two = Front(rays(2, 3), best), Front(rays(2, 3), [[1.0, 2.0], [2.0, 1.0], [3.0, 3.0]])
    assert single_point(one) and not single_point(two)
    names = {t["name"] for t in traces(draw_fronts({"a": one, "b": two}, tmp_path / "a.html", reference=[4.0, 4.0]))}
    assert names == {"a (HV 9, one point)", "b (HV 8)"}


def test_the_same_figure_is_the_same_file(tmp_path):
    given = fronts(2)
    for kind in ("svg", "html", "pdf"):
        first, second = (draw_fronts(given, tmp_path / f"{n}.{kind}").read_bytes() for n in "ab")
        assert first == second


def test_many_runs_can_be_told_apart(tmp_path):
    names = [f"run {k}" for k in range(20)]
    found = traces(draw_fronts(fronts(2, names=names), tmp_path / "a.html"))
    looks = {t["name"]: (t["marker"]["color"], t["marker"]["symbol"]) for t in found}
    assert len(set(looks.values())) == 20


def test_bad_arguments_are_named(tmp_path):
    good = fronts(2)
    with pytest.raises(ValueError, match=r"path must end in .html, .svg, .png or .pdf, got .*a.gif"):
        draw_fronts(good, tmp_path / "a.gif")
    with pytest.raises(ValueError, match="fronts must not be empty"):
        draw_fronts({}, tmp_path / "a.png")
    with pytest.raises(ValueError, match="the same names and directions: 'other' has"):
        draw_fronts({**good, "other": next(iter(fronts(2, maximise=True).values()))}, tmp_path / "a.png")
    with pytest.raises(ValueError, match="at least two metrics"):
        draw_fronts({"a": Front(rays(2, 2), [[1.0], [2.0]])}, tmp_path / "a.png")
    with pytest.raises(ValueError, match="reference must be 2 finite numbers"):
        draw_fronts(good, tmp_path / "a.png", reference=[1.0])
    assert not list(tmp_path.iterdir())
