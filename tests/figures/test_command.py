"""The command, what it wrote into ``results/figures``, and the tables of the documentation made from that."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from madamoo import cli
from madamoo.bench import get
from madamoo.bench.runs._files import seal
from madamoo.figures.claims import COMPARED, HIGHER, STALLS, Phases, phase_gaps, switch_distances
from madamoo.figures.command import FIGURES
from madamoo.figures.experiments import (
    ADAM_STILL,
    ADAMS,
    CONDITIONED,
    EUCLIDEAN,
    EXACT,
    EXECUTED,
    NOISE,
    RATE,
    STEPS,
    Switching,
    switching,
)
from madamoo.figures.fronts import TO_RUN
from madamoo.figures.tables import summary, tables
from madamoo.pareto import Front
from madamoo.presentation.style import ADAM, CONTROL, MADAM, OPTIMIZERS

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "results" / "figures"


def call(*arguments):
    return CliRunner().invoke(cli.build_app(), ["figures", *map(str, arguments)])


def strict(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture(scope="module")
def kept():
    return strict((KEPT / "numbers.json").read_text(encoding="utf-8"))


def test_the_command_gives_what_is_kept(tmp_path, kept):
    """One figure by the command, and the figure's own rate of the others: the other rates are rows beside it."""
    out = tmp_path / "deep" / "out"
    result = call("--out", out, "--only", "trajectories,fronts")
    assert result.exit_code == 0, result.output
    assert {p.name for p in out.iterdir()} == {"numbers.json", "figures.md", "trajectories.svg"}
    ElementTree.parse(out / "trajectories.svg")
    assert "![trajectories](trajectories.svg)" in (out / "figures.md").read_text(encoding="utf-8")
    assert TO_RUN[0] in result.output  # there were no fronts, and it says how to make some
    same(strict((out / "numbers.json").read_text(encoding="utf-8")), {"trajectories": kept["trajectories"]})


def test_the_runs_give_what_is_kept(kept):
    main = switching(COMPARED, rates=(RATE,))
    none = Switching(STEPS, (RATE,), {})
    phases = Phases(main, none, none, none)
    for noise in NOISE:
        for found, expected in (
            (switch_distances(phases, noise), kept["mismatch"]["distances"][noise]),
            (phase_gaps(phases, noise), kept["phases"]["gaps"][noise]),
        ):
            same(found, {name: expected[name] for name in COMPARED})


def same(found, expected, where="numbers"):
    """Equal but for what rounding may do: a per cent, and one case in a hundred of those that are counted."""
    if isinstance(expected, dict):
        assert set(found) == set(expected), where
        for key in expected:
            same(found[key], expected[key], f"{where}, {key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for k, entry in enumerate(expected):
            same(found[k], entry, f"{where}[{k}]")
    elif isinstance(expected, int):
        assert abs(found - expected) <= max(1, expected // 100), where
    else:
        assert found == pytest.approx(expected, rel=0.02, abs=1e-7), where


def test_every_number_in_the_documentation_is_the_kept_one(kept):
    text = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
    assert "madamoo figures --out results/figures" in text
    assert summary(kept) in text
    for name in ("mismatch", "phases", "trajectories"):
        assert tables(name, kept[name]) in text
        assert f"../results/figures/{name}.svg" in text


def test_what_the_documentation_says_of_the_numbers(kept):
    """Every sentence there that is a finding: if one of these fails, the page has to be rewritten."""
    mismatch, phases, trajectories = kept["mismatch"], kept["phases"], kept["trajectories"]
    # Without noise and with equal noise Adam does not stall where MAdam goes on; with unequal noise it does, at a rate.
    assert [mismatch["shares"][noise][STALLS][0] for noise in NOISE] == [0, 0, 1]
    uneven = mismatch["distances"]["unequal"]
    assert uneven[ADAM][-1] > 3 * uneven[MADAM][-1] and uneven[CONTROL][-1] > 3 * uneven[MADAM][-1]
    # Just after the switch it is Adam that moves faster.
    silent = mismatch["distances"]["none"]
    assert silent[ADAM][0] - silent[ADAM][1] > silent[MADAM][0] - silent[MADAM][1]
    for noise in ("none", "equal"):
        assert all(d > 2 * v and d > C > v for d, v, C in mismatch["moments"][noise].values())
    d, v, C = mismatch["moments"]["unequal"]["B"]
    assert v > 3 * d > 2 * C
    # The run in the figure shows the flip and its removal; over all runs MAdam flips more than Adam.
    signs, flipped = mismatch["signs"], mismatch["census"]["flipped steps"]
    assert signs[EUCLIDEAN]["raised"] == signs[CONDITIONED]["raised"] == signs[EXECUTED]["raised"] == [0.0, 0.0]
    assert signs[ADAMS]["raised"] == [0.5, 0.0] and signs[ADAMS]["lowest"][0] < -0.15
    assert flipped[ADAMS] < flipped[EXECUTED] < flipped[CONDITIONED] < 2 * flipped[ADAMS]
    never, runs = mismatch["census"]["runs in which the Euclidean effect is never negative"]
    assert never / runs < 0.25
    # No setting has Adam's gap orders of magnitude higher; momentum makes more of a difference than any metric.
    assert [phases["shares"][noise][HIGHER][0] for noise in NOISE] == [0, 0, 0]
    best = phases["best rates"]["none"]
    assert abs(best[MADAM]["mean"] / best[ADAM]["mean"] - 1) < 0.05
    assert best[ADAM_STILL]["mean"] < best[ADAM]["mean"] / 5
    # At each one's best rate MAdam is ahead with unequal noise, and behind with equal noise.
    best = phases["best rates"]
    for other in (ADAM, CONTROL):
        assert best["unequal"][MADAM]["mean"] < 0.85 * best["unequal"][other]["mean"]
        assert best["equal"][MADAM]["mean"] > 1.1 * best["equal"][other]["mean"]
    assert min(best["unequal"], key=lambda variant: best["unequal"][variant]["mean"]) == EXACT
    assert best["none"][ADAM_STILL]["mean"] < best["none"][EXACT]["mean"] < best["none"][ADAM]["mean"]
    # Under fixed preferences MAdam is nearer, except at the highest rates.
    held, panels = trajectories["MAdam is nearer"]
    assert held / panels > 0.8
    assert trajectories["path difference"] < 0.03
    assert trajectories["best rate"][MADAM]["distance"] > trajectories["best rate"][ADAM]["distance"]
    by_rate = [*trajectories["MAdam is nearer, by rate"].values()]
    assert all(a == b for a, b in by_rate[:4]) and by_rate[-1][0] < by_rate[-1][1] / 2


def test_fronts_are_means_over_the_seeds_of_each_optimizer(tmp_path):
    out, kept = tmp_path / "out", ROOT / "results" / "pareto"
    result = call("--out", out, "--only", "fronts", "--fronts", kept)
    assert result.exit_code == 0, result.output
    records = [json.loads(line) for file in kept.glob("*.jsonl") for line in file.read_text().splitlines()]
    numbers = strict((out / "numbers.json").read_text(encoding="utf-8"))
    assert list(numbers) == ["fronts"] and len(numbers["fronts"]) == 6
    specs = dict(zip(OPTIMIZERS.values(), OPTIMIZERS, strict=True))
    for name, found in numbers["fronts"].items():
        _, benchmark, method = (
            name.rsplit("-", 2) if "sarcos" not in name else (0, "sarcos-small", name.rsplit("-")[-1])
        )
        reference = get(benchmark).front.reference
        text = "".join(ElementTree.parse(out / f"{name}.svg").getroot().itertext())
        for label, numbered in found.items():
            if label == "seeds":
                continue
            wanted = {"benchmark": benchmark, "solver": method, "optimizer": specs[label], "lr": numbered["rate"]}
            fronts = [
                Front.from_dict(r["front"]["test"])
                for r in records
                if wanted.items() <= r["config"].items() and r["config"]["seed"] in found["seeds"]
            ]
            assert len(fronts) == len(found["seeds"]) > 1
            volumes = [front.hypervolume(reference) for front in fronts]
            assert numbered["hypervolume"] == pytest.approx(sum(volumes) / len(volumes), rel=1e-3)
            points = sum(front.points for front in fronts) / len(fronts)
            mean = Front(fronts[0].preferences, points, fronts[0].maximise).hypervolume(reference)
            assert f"{label} (HV {mean:.4g}" in text
    assert "MAdam raises the hypervolume (fronts-multimnist-pamal)" in result.output


def test_a_record_does_not_run_its_authors_file_unless_the_user_names_it(tmp_path):
    text = "from madamoo.bench.problems import registered\nBENCHMARKS = {'own': lambda: registered('multimnist')}\n"
    (tmp_path / "trap.py").write_text(f"{text}open({str(tmp_path / 'sprung')!r}, 'w')\n")
    line = next((ROOT / "results" / "pareto").glob("multimnist*.jsonl")).read_text().splitlines()[0]
    record = json.loads(line)
    record["config"]["benchmark"] = str(tmp_path / "trap.py")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "packed.jsonl").write_text(json.dumps(seal(record)) + "\n")
    result = call("--out", tmp_path / "out", "--only", "fronts", "--fronts", tmp_path / "runs")
    assert result.exit_code == 0 and "trap.py are left out" in result.output
    assert not (tmp_path / "sprung").exists() and not list((tmp_path / "out").glob("*.svg"))
    own = ("--benchmark", tmp_path / "trap.py")
    result = call("--out", tmp_path / "out", "--only", "fronts", "--fronts", tmp_path / "runs", *own)
    assert result.exit_code == 0 and (tmp_path / "sprung").exists() and list((tmp_path / "out").glob("*.svg"))


def test_without_fronts_it_says_what_to_run(tmp_path):
    (tmp_path / "runs").mkdir()
    for more in ([], ["--fronts", tmp_path / "runs"]):
        result = call("--out", tmp_path / "out", "--only", "fronts", *more)
        assert result.exit_code == 0
        assert "No fronts" in result.output and all(line in result.output for line in TO_RUN)
    assert list((tmp_path / "out").iterdir()) == []


def test_wrong_options_are_said_before_the_work(tmp_path):
    for arguments, message in (
        (["--only", "phases,front"], "there is no figure 'front'"),
        (["--format", "gif"], "must be one of svg, png, pdf"),
        (["--fronts", "nowhere"], "there is no folder nowhere"),
    ):
        result = call("--out", tmp_path / "out", *arguments)
        assert result.exit_code == 2
        assert message in " ".join(result.output.replace("│", " ").split()) and arguments[0] in result.output
        assert not (tmp_path / "out").exists()


def test_out_that_is_a_file_is_refused(tmp_path):
    file = tmp_path / "taken"
    file.write_text("mine")
    for out in (file, file / "below"):
        result = call("--out", out, "--only", "fronts")
        assert result.exit_code == 2
        assert "--out" in result.output and "Traceback" not in result.output
    assert file.read_text() == "mine"


def test_figures_made_one_by_one_share_a_page(tmp_path, monkeypatch, kept):
    """Numbers of other figures in the same folder stay; a figure that is made again replaces its own."""
    import madamoo.figures.command as command

    def pretend(wanted):
        from matplotlib.figure import Figure

        for name in wanted:
            if name != "fronts":
                yield name, Figure(), kept[name]

    monkeypatch.setattr(command, "_toy_figures", pretend)
    for foreign in ("not JSON", "[1]", '{"mismatch": {"of": "another version"}, "more": 1}'):
        (tmp_path / "numbers.json").write_text(foreign)
        assert call("--out", tmp_path, "--only", "phases").exit_code == 0
        assert strict((tmp_path / "numbers.json").read_text(encoding="utf-8")) == {"phases": kept["phases"]}
    for names in ("trajectories,mismatch", "phases"):
        assert call("--out", tmp_path, "--only", names).exit_code == 0
    assert list(strict((tmp_path / "numbers.json").read_text(encoding="utf-8"))) == list(FIGURES[:3])
    assert (tmp_path / "figures.md").read_text(encoding="utf-8").count("![") == 3
