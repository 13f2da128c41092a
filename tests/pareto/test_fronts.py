"""Fronts and their indicators, against their definitions."""

import json
import subprocess
import sys
from itertools import combinations, product

import numpy as np
import pytest
import torch

from madamoo.pareto import (
    Front,
    evaluate,
    hypervolume,
    igd_plus,
    monotonicity,
    non_dominated,
    rays,
    spacing,
    uniformity,
)

RNG = np.random.default_rng(0)
DIRECTIONS = {
    "least": lambda k: [False] * k,
    "most": lambda k: [True] * k,
    "mixed": lambda k: [True, False, True, True][:k],
}


def dominates(p, q, maximise):
    signs = [-1 if up else 1 for up in maximise]
    at_least = all(s * a <= s * b for s, a, b in zip(signs, p, q, strict=True))
    return at_least and any(s * a < s * b for s, a, b in zip(signs, p, q, strict=True))


def unit_cells(points, reference, maximise):
    """Hypervolume of integer points: the unit cells between reference and points, counted one by one."""
    low = np.minimum(points.min(axis=0), reference)
    high = np.maximum(points.max(axis=0), reference)
    count = 0
    for cell in product(*(range(a, b) for a, b in zip(low, high, strict=True))):
        # cell stands for the cube from cell to cell + 1
        beyond = all((c >= r) if up else (c + 1 <= r) for c, r, up in zip(cell, reference, maximise, strict=True))
        covered = any(
            all((c + 1 <= p) if up else (c >= p) for c, p, up in zip(cell, point, maximise, strict=True))
            for point in points
        )
        count += beyond and covered
    return count


def inclusion_exclusion(points, reference):
    """Hypervolume where less is better."""
    total = 0.0
    for size in range(1, len(points) + 1):
        for subset in combinations(points, size):
            total -= (-1) ** size * np.prod(np.maximum(reference - np.max(subset, axis=0), 0.0))
    return total


@pytest.mark.parametrize("way", DIRECTIONS)
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_non_dominated_is_a_double_loop(k, way):
    maximise = DIRECTIONS[way](k)
    for n in (1, 5, 40):
        points = RNG.integers(0, 5, size=(n, k))  # with ties and duplicates
        expected = [not any(dominates(q, p, maximise) for q in points) for p in points]
        assert non_dominated(points, maximise).tolist() == expected


def test_duplicates_are_all_kept_or_all_dropped():
    points = [[1, 2], [2, 1], [1, 2], [2, 2], [2, 2], [1, 3]]
    assert non_dominated(points).tolist() == [True, True, True, False, False, False]
    assert non_dominated(points, maximise=True).tolist() == [False, False, False, True, True, True]
    assert non_dominated([[1.0, 1.0]] * 3, maximise=True).all()
    assert non_dominated(np.empty((0, 2))).tolist() == []


@pytest.mark.parametrize("way", DIRECTIONS)
@pytest.mark.parametrize("k, side", [(2, 9), (3, 6), (4, 4)])
def test_hypervolume_counts_cells(k, side, way):
    maximise = DIRECTIONS[way](k)
    for trial in range(6):
        points = RNG.integers(0, side, size=(7, k))
        reference = np.where(maximise, trial % 3 - 1, side - trial % 3 - 1)  # sometimes worse than all, sometimes not
        found = hypervolume(points, reference=reference.tolist(), maximise=maximise)
        assert found == pytest.approx(unit_cells(points, reference, maximise), abs=1e-9)


@pytest.mark.parametrize("k", [2, 3, 4, 7])
def test_hypervolume_is_inclusion_and_exclusion(k):
    points = RNG.random((8, k)) * 1.2
    expected = inclusion_exclusion(points, np.ones(k))
    assert hypervolume(points, reference=[1.0] * k) == pytest.approx(expected, rel=1e-9)
    # Mirrored, with more being better, it is the same; so it is when only some objectives are mirrored.
    assert hypervolume(-points, reference=[-1.0] * k, maximise=True) == pytest.approx(expected, rel=1e-9)
    some = [j % 2 == 0 for j in range(k)]
    signs = np.where(some, -1.0, 1.0)
    assert hypervolume(points * signs, reference=signs, maximise=some) == pytest.approx(expected, rel=1e-9)


def test_hypervolume_signs():
    """Accuracies with reference 0, and errors with a reference above: the wrong direction gives nothing, not less."""
    accuracies = [[0.9, 0.5], [0.6, 0.8]]
    assert hypervolume(accuracies, reference=[0, 0], maximise=True) == pytest.approx(0.9 * 0.5 + 0.6 * 0.3)
    assert hypervolume(accuracies, reference=[0, 0]) == 0.0
    assert hypervolume(accuracies, reference=[1, 1]) == pytest.approx(0.1 * 0.5 + 0.4 * 0.2 - 0.1 * 0.2)
    assert hypervolume(accuracies, reference=[1, 1], maximise=True) == 0.0
    # The reference is per objective, in order.
    assert hypervolume([[0.5, 3.0]], reference=[1, 5]) == pytest.approx(1.0)
    assert hypervolume([[0.5, 3.0]], reference=[5, 1]) == 0.0


def test_points_beyond_the_reference_add_nothing():
    inside = [[0.5, 0.5, 0.5]]
    beyond = [[0.1, 0.1, 1.5], [2.0, 2.0, 2.0], [1.0, 0.0, 0.0]]  # the last is on the border
    assert hypervolume(inside + beyond, reference=[1, 1, 1]) == pytest.approx(0.125)
    assert hypervolume(beyond, reference=[1, 1, 1]) == 0.0
    assert hypervolume(np.empty((0, 3)), reference=[1, 1, 1]) == 0.0


@pytest.mark.parametrize("way", DIRECTIONS)
@pytest.mark.parametrize("k", [2, 3])
def test_igd_plus_is_its_definition(k, way):
    maximise = DIRECTIONS[way](k)
    ours, true = RNG.random((6, k)), RNG.random((9, k))
    total = 0.0
    for z in true:
        lengths = []
        for y in ours:
            worse = [max((b - a) if up else (a - b), 0.0) for a, b, up in zip(y, z, maximise, strict=True)]
            lengths.append(sum(w * w for w in worse) ** 0.5)
        total += min(lengths)
    assert igd_plus(ours, true, maximise) == pytest.approx(total / len(true))
    assert igd_plus(np.vstack([ours, true]), true, maximise) == 0.0


def test_uniformity_is_its_formula():
    a, losses = np.array([[0.2, 0.8], [0.5, 0.5]]), np.array([[4.0, 1.0], [3.0, 1.0]])
    u = np.array([0.75, 0.25])  # of the second ray; the first is exactly matched: 0.2 * 4 = 0.8 * 1
    mu = (u * np.log(2 * u)).sum()
    assert uniformity(losses, a) == pytest.approx(1 - mu / 2)
    assert uniformity(1e-200 * losses, 3 * a) == pytest.approx(1 - mu / 2)
    three = rays(3, 66)[(rays(3, 66) > 0).all(dim=1)].double()
    assert uniformity(1 / three, three) == pytest.approx(1.0)  # on the rays
    assert uniformity(three, three) < 0.9  # proportional to the preference, not inversely


def test_uniformity_without_some_weights():
    one = uniformity([[3.0, 1.0]], [[0.5, 0.5]])
    assert uniformity([[3.0, 1.0, 99.0]], [[0.5, 0.5, 0.0]]) == pytest.approx(one)
    assert uniformity([[3.0, 1.0], [0.3, 7.0]], [[0.5, 0.5], [1.0, 0.0]]) == pytest.approx(one)
    assert uniformity([[0.0, 0.0]], [[0.5, 0.5]]) == 1.0
    assert uniformity([[0.0, 1.0]], [[0.5, 0.5]]) == pytest.approx(1 - np.log(2))  # the worst
    with pytest.raises(ValueError, match="more than one positive weight"):
        uniformity([[1.0, 1.0]], [[1.0, 0.0]])
    with pytest.raises(ValueError, match="points must be losses, which are not negative, got -1"):
        uniformity([[-1.0, 1.0]], [[0.5, 0.5]])


@pytest.mark.parametrize("way", DIRECTIONS)
def test_monotonicity_is_a_double_loop(way):
    maximise = DIRECTIONS[way](3)
    a = rays(3, 15)
    points = RNG.integers(0, 4, size=(15, 3)).astype(float)
    weights = torch.round(a * 4).int().tolist()
    expected = []
    for i in range(3):
        pairs = [(r, s) for r in range(15) for s in range(15) if weights[r][i] > weights[s][i]]
        kept = [points[r, i] >= points[s, i] if maximise[i] else points[r, i] <= points[s, i] for r, s in pairs]
        expected.append(sum(kept) / len(kept))
    torch.testing.assert_close(monotonicity(points, a, maximise), torch.tensor(expected, dtype=torch.float64))


def test_monotonicity_of_obedient_and_of_contrary_fronts():
    a = rays(3, 66)
    assert monotonicity(1 - a, a).tolist() == [1.0] * 3
    assert monotonicity(a, a, maximise=True).tolist() == [1.0] * 3
    assert monotonicity(a, a).tolist() == [0.0] * 3
    assert monotonicity(torch.ones(66, 3), a).tolist() == [1.0] * 3  # equal results are kept
    found = monotonicity([[1.0, 2.0], [2.0, 1.0]], [[0.5, 0.5], [1.0, 1.0]])
    assert torch.isnan(found).all()  # the same weights


def test_spacing_is_its_formula():
    points = RNG.random((12, 3))
    d = [min(np.abs(p - q).sum() for j, q in enumerate(points) if j != i) for i, p in enumerate(points)]
    expected = (sum((x - sum(d) / 12) ** 2 for x in d) / 11) ** 0.5
    assert spacing(points) == pytest.approx(expected)
    assert spacing(rays(2, 11)) == pytest.approx(0.0, abs=1e-6)
    assert spacing([[0, 5], [1, 4], [5, 0]]) == pytest.approx(np.std([2, 2, 8], ddof=1))


BAD = [[0.0, np.nan], [0.0, np.inf], [-np.inf, 0.0]]


@pytest.mark.parametrize("row", BAD)
@pytest.mark.parametrize(
    "indicator",
    [
        non_dominated,
        lambda p: hypervolume(p, reference=[1, 1]),
        lambda p: igd_plus(p, [[0, 0]]),
        lambda p: igd_plus([[0, 0]], p),
        lambda p: uniformity(p, [[0.5, 0.5]] * 2),
        lambda p: monotonicity(p, [[0.5, 0.5]] * 2),
        spacing,
        lambda p: Front([[0.5, 0.5]] * 2, p),
        lambda p: hypervolume([[0, 0]], reference=p[1]),
    ],
)
def test_what_is_not_finite_is_refused(indicator, row):
    with pytest.raises(ValueError, match="finite"):
        indicator([[0.0, 0.0], row])


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: hypervolume([1.0, 2.0], reference=[1, 1]), r"points must have the shape \[points, objectives\]"),
        (lambda: hypervolume([[1.0, 2.0]], reference=[1]), "reference must be 2 finite numbers"),
        (lambda: hypervolume([[1.0, 2.0]], reference=5.0), "reference must be 2 finite numbers"),
        (lambda: hypervolume([[1.0, 2.0]], reference=[1, 1], maximise=[True]), "maximise must be one bool or 2"),
        (lambda: igd_plus([[1.0, 2.0]], [[1.0]]), "front must have 2 objectives"),
        (lambda: igd_plus(np.empty((0, 2)), [[1.0, 1.0]]), "points must not be empty"),
        (lambda: igd_plus([[1.0, 2.0]], np.empty((0, 2))), "front must not be empty"),
        (lambda: uniformity([[1.0, 2.0]], [[1.0, 1.0]] * 2), r"preferences must have the points' shape, \[1, 2\]"),
        (lambda: spacing([[1.0, 2.0]]), "points must be at least 2, got 1"),
        (lambda: Front([[1.0, 0.0]], [[1.0, 2.0]] * 2), r"points must have the shape \[1, metrics\]"),
        (lambda: Front([[1.0, -1.0]], [[1.0, 2.0]]), "preferences must be finite and not negative"),
        (lambda: Front([[1.0, 0.0]], [[1.0, 2.0]], names=["a"]), "names must be 2"),
        (lambda: evaluate(lambda a: a, torch.empty(0, 2)), "rays must not be empty"),
        (lambda: evaluate(lambda a: a[: 1 + int(a[0])], rays(2, 3)), "always as many"),
        (lambda: evaluate(lambda a: 1.0, rays(2, 3)), "one number for each of its metrics"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_any_kind_of_numbers():
    lists = [[1.0, 3.0], [2.0, 1.0]]
    kinds = [
        lists,
        tuple(map(tuple, lists)),
        np.array(lists, dtype=np.float32),
        torch.tensor(lists, requires_grad=True),
        torch.tensor(lists, dtype=torch.bfloat16),
        [torch.tensor(row, requires_grad=True) for row in lists],
        [np.array(row) for row in lists],
    ]
    for points in kinds:
        assert hypervolume(points, reference=[4.0, 4.0]) == 7.0
        assert non_dominated(points).tolist() == [True, True]


def front():
    return Front(
        rays(2, 4),
        [[0.9, 0.1, 7.0], [0.8, 0.1, 9.0], [0.5, 0.6, 3.0], [0.2, 0.8, 5.0]],
        maximise=[True, True, False],
        names=("left", "right", "seconds"),
    )


def test_front_keeps_what_is_not_dominated():
    kept = front().non_dominated()
    assert kept.points[:, 2].tolist() == [7.0, 3.0, 5.0] and len(kept) == 3
    assert torch.equal(kept.preferences, front().preferences[[0, 2, 3]])
    assert (kept.names, kept.maximise) == (front().names, front().maximise)


def test_front_knows_its_directions():
    reference = [0, 0, 10]
    assert front().hypervolume(reference) == pytest.approx(
        hypervolume(front().points, reference=reference, maximise=[True, True, False])
    )
    assert front().hypervolume(reference) == pytest.approx(
        inclusion_exclusion(front().points.numpy() * [-1, -1, 1], np.array([0, 0, 10]))
    )
    assert front().best(lambda p: p[0] + p[1]) == 2
    assert front().best(lambda p: -p[2]) == 2
    assert front().best(lambda p: float(p[0])) == 0


def test_front_goes_through_json():
    again = Front.from_dict(json.loads(json.dumps(front().to_dict(), allow_nan=False)))
    assert again.to_dict() == front().to_dict()
    assert torch.equal(again.points, front().points) and torch.equal(again.preferences, front().preferences)
    assert (again.maximise, again.names) == (front().maximise, front().names)
    assert again.points.dtype == torch.float64


def test_front_is_frozen_and_its_own():
    points = torch.rand(3, 2, dtype=torch.float64)
    held = Front(rays(2, 3), points)
    points.zero_()
    assert held.points.abs().sum() > 0
    with pytest.raises(AttributeError):
        held.points = points
    assert held.names == ("f1", "f2") and held.maximise == (False, False)


def test_evaluate_asks_for_each_ray_once():
    asked = []

    def metric(preference):
        asked.append(preference)
        return [float(preference[0]) ** 2, float(preference[1]), 1.0]

    found = evaluate(metric, rays(2, 5), maximise=[True, False, False], names=["a", "b", "c"])
    assert torch.equal(torch.stack(asked), rays(2, 5))
    assert torch.equal(found.preferences, rays(2, 5).double())
    torch.testing.assert_close(found.points[:, 0], rays(2, 5)[:, 0].double() ** 2)
    assert (found.names, found.maximise) == (("a", "b", "c"), (True, False, False))


PROBE = """
import sys
for name in ("moocore", "plotly", "matplotlib"):
    sys.modules[name] = None  # as if it were not installed
import madamoo
assert "madamoo.pareto" not in sys.modules
from madamoo import pareto
front = pareto.Front(pareto.rays(2, 3), [[1, 2], [2, 1], [3, 3]])
assert len(front.non_dominated()) == 2
for call, package in (
    (lambda: front.hypervolume([4, 4]), "moocore"),
    (lambda: pareto.igd_plus(front.points, front.points), "moocore"),
    (lambda: pareto.draw_fronts({"a": front}, sys.argv[1] + "/a.png"), "matplotlib"),
    (lambda: pareto.draw_fronts({"a": front}, sys.argv[1] + "/a.html"), "plotly"),
):
    try:
        call()
    except ImportError as error:
        assert package in str(error) and "madamoo[pareto]" in str(error), error
    else:
        raise AssertionError(package)
"""


def test_the_extra_is_named_where_it_is_missing(tmp_path):
    """Everything else works without it."""
    result = subprocess.run([sys.executable, "-c", PROBE, str(tmp_path)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
