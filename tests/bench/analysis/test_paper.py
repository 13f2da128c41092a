"""The paper's figures, as a reader finds them in its tables."""

import itertools

import pytest

from madamoo import bench
from madamoo.bench.analysis import _paper

SOLVERS = ("ls", "dwa", "uw", "imtl", "cagrad")
METRICS = {
    "multimnist": ("avg_acc", "left_acc", "right_acc"),
    "sarcos": ("avg_err", "t1", "t2", "t3", "t4", "t5", "t6", "t7"),
    "utkface": ("age_mae", "gender_acc", "race_acc"),
    "cityscapes": ("miou", "pix_acc", "abs_err", "rel_err"),
    "nyuv2": (
        *("miou", "pix_acc", "abs_err", "rel_err", "angle_mean", "angle_median"),
        *("within_11", "within_22", "within_30"),
    ),
}


FRONTS = ("pamal", "palora")


def test_every_solver_and_metric_has_its_pair():
    for benchmark, metrics in METRICS.items():
        known = _paper._figures()[benchmark]
        assert tuple(name for name in known if name not in FRONTS) == SOLVERS
        deviations = benchmark not in ("cityscapes", "nyuv2")
        for solver in SOLVERS:
            assert tuple(known[solver]) == metrics
            for metric in metrics:
                found = _paper.figure(benchmark, solver, metric)
                assert found["of"] == benchmark
                for name in ("adam", "madam"):
                    mean, deviation = found[name]
                    assert mean > 0 and (deviation is not None) == deviations


def test_figures_read_by_eye():
    for benchmark, solver, metric, adam, madam in (
        ("multimnist", "ls", "avg_acc", [94.08, 0.37], [95.11, 0.32]),
        ("multimnist", "uw", "left_acc", [95.12, 0.46], [95.93, 0.51]),
        ("multimnist", "cagrad", "right_acc", [93.24, 0.71], [94.42, 0.42]),
        ("sarcos", "ls", "t7", [0.30, 0.01], [0.31, 0.02]),
        ("sarcos", "imtl", "avg_err", [12.10, 0.29], [11.05, 0.39]),
        ("sarcos", "cagrad", "t5", [50.30, 3.63], [47.92, 3.11]),
        ("utkface", "dwa", "age_mae", [9.70, 1.03], [8.91, 0.19]),
        ("utkface", "cagrad", "race_acc", [81.34, 0.36], [81.37, 2.60]),
        ("cityscapes", "imtl", "rel_err", [74.23, None], [61.81, None]),
        ("cityscapes", "ls", "abs_err", [0.0192, None], [0.0187, None]),
        ("nyuv2", "ls", "miou", [36.33, None], [37.56, None]),
        ("nyuv2", "uw", "angle_mean", [28.22, None], [28.29, None]),
        ("nyuv2", "cagrad", "within_30", [67.96, None], [68.39, None]),
        ("multimnist", "pamal", "hypervolume", [0.8869, 0.006], [0.9086, 0.005]),
        ("multimnist", "palora", "hypervolume", [0.9016, 0.0045], [0.9177, 0.0024]),
        ("sarcos", "pamal", "hypervolume", [378.2864, 9.2692], [394.5543, 4.1958]),
        ("sarcos", "palora", "hypervolume", [431.205, 8.4737], [442.1679, 3.406]),
        ("isic", "ls, unet", "dice", [87.75, None], [87.72, None]),  # the paper's 0.8775 and 0.8772
        ("isic", "ls, swin", "hd95", [20.6307, None], [20.1855, None]),
    ):
        assert _paper.figure(benchmark, solver, metric) == {"adam": adam, "madam": madam, "of": benchmark}


def test_averages_are_those_of_the_columns():
    """A figure in the wrong column would show here."""
    for solver, name, benchmark in itertools.product(SOLVERS, ("adam", "madam"), ("sarcos", "multimnist")):
        total, *parts = (_paper.figure(benchmark, solver, metric)[name][0] for metric in METRICS[benchmark])
        assert total == pytest.approx(sum(parts) / len(parts), abs=0.011)


def test_the_ablation():
    rows = _paper.ablation("sarcos")
    averages = {name: row["avg_err"] for name, row in rows.items()}
    assert averages == {
        "full": [10.00, 0.07],
        "no_rampup": [11.74, 0.54],
        "no_pair_sampling": [10.33, 0.61],
        "no_off_diagonals": [10.47, 0.70],
        "baseline": [10.99, 0.59],
    }
    for row in rows.values():
        assert row["avg_err"][0] == pytest.approx(sum(row[f"t{k}"][0] for k in range(1, 8)) / 7, abs=0.011)
    assert rows["full"]["t5"] == _paper.figure("sarcos", "ls", "t5")["madam"]
    assert _paper.ablation("multimnist") is None


def test_a_benchmark_of_less_data_borrows_the_figure_and_says_so():
    assert _paper.figure("sarcos-small", "uw", "t2") == _paper.figure("sarcos", "uw", "t2")
    assert _paper.figure("sarcos-small", "uw", "t2")["of"] == "sarcos"


def test_nothing_is_shown_that_the_paper_does_not_have():
    assert _paper.figure("digits", "ls", "avg_acc") is None
    assert _paper.figure("sarcos", "cagrad:c=0.2", "avg_err") is None
    assert _paper.figure("sarcos", "mgda", "avg_err") is None
    assert _paper.figure("ablation", "sarcos", "full") is None


def test_isic_has_a_row_per_backbone():
    row = bench.get("isic").row_of_paper
    assert row("ls", {"model": "swin:width=12"}) == "ls, swin" and row("ls", {"model": "unet"}) == "ls, unet"


def test_the_names_are_those_of_the_benchmarks():
    for name in set(METRICS) & set(bench.available()):
        assert set(METRICS[name]) <= {metric.name for metric in bench.get(name).metrics}, name
