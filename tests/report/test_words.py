"""The sentences say what the numbers say."""

from madamoo import diagnostics
from madamoo.report import words
from madamoo.report.page import Points
from madamoo.report.reading import Run, read_single


def test_a_lab_run_is_told_from_its_record(lab):
    run = read_single(lab / "madam-0")
    text = words.trained(run)
    for part in ("MAdam with cagrad", "2 objectives (sum and sign)", "3 epochs of batches of 8", "18 steps", "seed 0"):
        assert part in text
    assert f"error {run.record['metrics']['error']:.4g}" in words.outcome(run)
    first, last = run.epochs[0]["validation_losses"], run.epochs[-1]["validation_losses"]
    assert f"sum from {first[0]:.3g} to {last[0]:.3g}" in words.losses(run)


def test_the_diagnosis_is_that_of_the_library(own):
    run = read_single(own)
    found = words.diagnosis(run)
    assert isinstance(found, Points)
    assert " ".join(found.lines) == diagnostics.describe(diagnostics.summary(run.rows))
    assert any("Euclidean metric" in line for line in found.lines)


def test_losses_that_did_not_fall_are_named():
    def row(step, a, b):
        return {"step": step, "objectives": ["a", "b"], "losses": {"a": a, "b": b}}

    assert "beginning: b." in words.losses(Run("x", rows=[row(0, 2.0, 1.0), row(1, 1.0, 1.5)]))
    assert "All of them fell." in words.losses(Run("x", rows=[row(0, 2.0, 1.0), row(1, 1.0, 0.5)]))
    assert words.losses(Run("x", rows=[row(0, 2.0, 1.0)])) == ""


def test_why_there_is_no_diagnosis(lab):
    def absent(**config):
        return words.absent(Run("x", {"config": config, "status": "finished"}))

    assert "--diagnose" in absent(optimizer="adam", solver="ls")
    assert "no single one" in absent(optimizer="mtadam", solver="ls")
    assert "Each ray" in absent(optimizer="adam", solver="rays:of=epo")
