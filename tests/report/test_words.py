"""The sentences say what the numbers say."""

from madamoo import diagnostics
from madamoo.presentation.page import Points
from madamoo.report import words
from madamoo.report.reading import ReadRun, read_single


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
    facts = diagnostics.summary(run.rows)
    assert found.lines == diagnostics.findings(facts)
    text, advice = diagnostics.verdict(facts)
    assert words.verdict(run).text.endswith(text) and list(words.verdict(run).advice)[-len(advice) :] == advice
    assert any("Euclidean metric" in line for line in found.lines)


def test_losses_that_did_not_fall_are_named():
    def row(step, a, b):
        return {"step": step, "objectives": ["a", "b"], "losses": {"a": a, "b": b}}

    assert "beginning: b." in words.losses(ReadRun("x", rows=[row(0, 2.0, 1.0), row(1, 1.0, 1.5)]))
    assert "All of them fell." in words.losses(ReadRun("x", rows=[row(0, 2.0, 1.0), row(1, 1.0, 0.5)]))
    assert words.losses(ReadRun("x", rows=[row(0, 2.0, 1.0)])) == ""


def test_how_a_run_ended_is_the_first_word_of_the_verdict(lab):
    record = read_single(lab / "madam-0").record
    for status, text in (("diverged", "The run diverged."), ("running", "The run has not ended.")):
        assert words.verdict(ReadRun("x", record | {"status": status})).text.startswith(text)
    worse = ReadRun("x", record, [{"epoch": k, "validation_losses": [k, 1 - k]} for k in range(2)])
    assert words.verdict(worse).text.startswith("1 of 2 losses did not fall (sum).")
    control = ReadRun("x", record | {"config": record["config"] | {"optimizer": "marginal:every=2"}})
    assert words.trained(control).startswith("control (marginal, every=2) with cagrad")


def test_why_there_is_no_diagnosis():
    def absent(**config):
        return words.absent(ReadRun("x", {"config": config, "status": "finished"}))

    assert "--diagnose" in absent(optimizer="adam", solver="ls")
    assert "no single one" in absent(optimizer="mtadam", solver="ls")
    assert "Each ray" in absent(optimizer="adam", solver="rays:of=epo")
