"""A run: what depends on the seed, what chooses, and that no kill changes a number."""

import errno
import json
import math
import os
import random
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

import toy_benchmark
from killing import kill_after
from madamoo.bench import Profile, configure
from madamoo.bench.problems._registry import get
from madamoo.bench.runs import Busy, OtherRun, RunFolder, read_rows
from madamoo.bench.training import Training, train
from madamoo.bench.training import _run as module

TOY = toy_benchmark.__file__
CPU = torch.device("cpu")


def toy(**options):
    return configure(TOY, **options)


def own(tmp_path, text):
    """A user's file: the toy, and what ``text`` changes in it."""
    file = tmp_path / "own.py"
    file.write_text(Path(TOY).read_text() + "\n\n" + text)
    return str(file)


def start(config):
    problem = get(config.benchmark)
    profile = problem.profiles[config.profile]
    with torch.random.fork_rng():
        return Training(config, problem, profile, problem.load(None, profile, config.seed), CPU)


def numbers(folder):
    """All that a run found out, without what the clock and the machine say."""
    record = json.loads((folder / "run.json").read_text(), parse_constant=lambda c: pytest.fail(c))
    rows, _ = read_rows(folder / "epochs.jsonl")
    for row in rows:
        del row["seconds"]
    losses = [loss for _, loss in record["cost"]["curve"]]
    kept = ("config", "status", "metrics", "validation", "validation_loss", "epoch", "steps", "refused_steps")
    return {key: record[key] for key in kept} | {"rows": rows, "losses": losses, "parameters": record["parameters"]}


class Stop(Exception):
    pass


def save_each_step(patch):
    """Checkpoints are written less often than asked where writing takes long; not here."""
    patch.setattr(module, "max", lambda *values: 0.0 if values[0] == 0.0 else max(*values), raising=False)


def stopped(config, folder, steps, patch):
    """Train until the first of ``steps``, which is taken from the list, and stop just behind a checkpoint there."""
    save = RunFolder.save

    def saving(self, config, state):
        if steps and state["training"]["step"] < steps[0]:
            return
        save(self, config, state)
        if steps:
            steps.pop(0)
            raise Stop

    with patch.context() as inner:
        save_each_step(inner)
        inner.setattr(RunFolder, "save", saving)
        return train(config, folder, checkpoint_every=0.0)


def broken(config, folder, steps, patch):
    """The run, stopped after each of ``steps``, then done to its end."""
    while True:
        with suppress(Stop):
            return stopped(config, folder, steps, patch)


SOME = [  # each kind of state once: learned, drawn, remembered or none; without averages, and with those of each kind
    ("uw", "adam"),
    ("uw", "madam"),
    ("restless", "madam:estimator=full"),
    ("restless", "marginal"),
    ("cagrad", "madam:estimator=pair"),
    ("dwa", "madam:estimator=separable"),
    ("famo", "madam"),
    ("nashmtl", "adam"),
    ("graddrop", "madam"),
    ("gradnorm", "madam"),
]


@pytest.mark.parametrize(("solver", "optimizer"), SOME)
def test_a_broken_run_ends_with_the_numbers_of_an_unbroken_one(tmp_path, monkeypatch, solver, optimizer):
    config = toy(solver=solver, optimizer=optimizer, epochs=2)
    train(config, tmp_path / "whole")
    record = broken(config, tmp_path / "broken", [2, 6, 9], monkeypatch)
    assert record["resumed_from"] == 9
    assert numbers(tmp_path / "broken") == numbers(tmp_path / "whole")


@pytest.mark.parametrize(
    "options",
    [
        {"profile": "halved"},
        {"schedule": "cosine"},
        {"profile": "best"},
        {"model": f"{TOY}:share=0.3"},
        {"optimizer": "mtadam"},
        {"optimizer": "adatask"},
        {"batch": 7, "seed": -2},
        {"optimizer": "madam:rampup=100"},
    ],
    ids=str,
)
def test_so_does_one_with_scheduler_dropout_or_other_options(tmp_path, monkeypatch, options):
    config = toy(**options)
    train(config, tmp_path / "whole")
    broken(config, tmp_path / "broken", [1, 5, 7, 12], monkeypatch)
    assert numbers(tmp_path / "broken") == numbers(tmp_path / "whole")


def test_the_scheduler_halves_the_rate():
    training = start(toy(profile="halved"))
    rates = []
    while not training.ended:
        training.advance()
        rates.append(training.optimizer.param_groups[0]["lr"])
    assert rates == [1e-2] * 6 + [5e-3] * 6 + [2.5e-3] * 6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_killed_at_any_moment_it_goes_on_and_ends_with_the_same_numbers(tmp_path):
    """Real processes, killed without warning, in the middle of writes too."""
    config = toy(epochs=20, solver="uw", model=f"{TOY}:share=0.3", profile="halved")
    train(config, tmp_path / "whole")
    draw, folder, resumed = random.Random(0), RunFolder(tmp_path / "killed"), []
    for _ in range(7):
        kill_after(config, folder.path, draw.randint(2, 9), draw.uniform(0.0, 0.02))
        assert folder.read(config)["status"] == "running"  # whole at every moment
        resumed.append(folder.load(config)["training"]["step"])
    assert train(config, folder.path)["resumed_from"] == resumed[-1]
    assert resumed == sorted(set(resumed)), "each went on where the last one had come"
    assert numbers(folder.path) == numbers(tmp_path / "whole")
    assert sorted(p.name for p in folder.path.iterdir()) == ["checkpoint.pt", "epochs.jsonl", "lock", "run.json"]


WRITES = ["run.json", "epochs.jsonl", "checkpoint.pt"]


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize(("number", "full"), [(1, False), (2, True), (3, False)])
def test_stopped_at_each_kind_of_write(tmp_path, monkeypatch, name, number, full):
    """Just before the n-th write of each file takes effect: also between the last checkpoint and the final record."""
    config = toy(epochs=2)
    train(config, tmp_path / "whole")
    replace_file, count = os.replace, 0

    def stopping(source, target):
        nonlocal count
        if Path(target).name == name:
            count += 1
            if count == number:
                raise OSError(errno.ENOSPC, "No space left on device") if full else Stop
        replace_file(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", stopping)
        try:
            train(config, tmp_path / "run", checkpoint_every=0.0)
        except (Stop, OSError):
            assert RunFolder(tmp_path / "run").record_file.exists() == ((name, number) != ("run.json", 1))
    record = train(config, tmp_path / "run")
    assert record["status"] == "finished"
    assert numbers(tmp_path / "run") == numbers(tmp_path / "whole")


def test_a_finished_run_is_not_repeated(tmp_path, monkeypatch):
    config = toy()
    rows = []
    first = train(config, tmp_path, report=rows.append)
    assert [row["epoch"] for row in rows] == [1, 2, 3] and first["steps"] == 18
    before = {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in tmp_path.iterdir()}
    monkeypatch.setattr(module, "Training", None)
    assert train(config, tmp_path)["metrics"] == first["metrics"]
    assert {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in tmp_path.iterdir()} == before


def test_another_configuration_and_another_process_are_refused(tmp_path):
    train(toy(), tmp_path)
    with pytest.raises(OtherRun, match="epochs 3, not 4"):
        train(toy(epochs=4), tmp_path)
    with RunFolder(tmp_path).locked(), pytest.raises(Busy):
        train(toy(), tmp_path)


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize(
    ("step", "damage"), [(8, lambda b: b[:-9]), (None, lambda b: b[:99] + bytes([b[99] ^ 2]) + b[100:])]
)
def test_damage_is_named_and_the_numbers_are_the_same(tmp_path, monkeypatch, capsys, name, damage, step):
    config = toy()
    train(config, tmp_path / "whole")
    run = tmp_path / "run"
    if step is None:
        train(config, run)
        if name != "run.json":
            (run / "run.json").unlink()  # else there is nothing to do
    else:
        with pytest.raises(Stop):
            stopped(config, run, [step], monkeypatch)
    (run / name).write_bytes(damage((run / name).read_bytes()))
    capsys.readouterr()
    record = train(config, run)
    assert record["resumed_from"] == (None if name == "checkpoint.pt" else step or 18)
    assert numbers(run) == numbers(tmp_path / "whole")
    said = capsys.readouterr().err
    if name != "epochs.jsonl":  # which is written, never read
        assert f"{run / name} is damaged" in said and (run / f"{name}.damaged").exists()


def test_epochs_behind_the_checkpoint_do_not_stay(tmp_path):
    """Killed after an epoch was written and before its checkpoint; the rows of the checkpoint are the true ones."""
    config = toy()
    train(config, tmp_path / "whole")
    train(config, tmp_path / "run")
    (tmp_path / "run" / "run.json").unlink()
    with (tmp_path / "run" / "epochs.jsonl").open("a") as file:
        file.write('{"epoch": 4, "seconds": 1}\n{"epo')
    train(config, tmp_path / "run")
    assert numbers(tmp_path / "run") == numbers(tmp_path / "whole")


def test_a_checkpoint_is_dropped_only_when_asked(tmp_path):
    train(toy(), tmp_path / "kept")
    train(toy(), tmp_path / "dropped", keep_checkpoint=False)
    assert (tmp_path / "kept" / "checkpoint.pt").exists()
    assert not (tmp_path / "dropped" / "checkpoint.pt").exists()
    assert numbers(tmp_path / "kept") == numbers(tmp_path / "dropped")


def test_threads_are_those_of_the_first_start_and_are_given_back(tmp_path, monkeypatch):
    config = toy(profile="free")
    before = torch.get_num_threads()
    advance = Training.advance
    seen = []

    def noting(self):
        seen.append(torch.get_num_threads())
        if self.step == 3 and len(seen) == 4:
            raise Stop
        return advance(self)

    monkeypatch.setattr(Training, "advance", noting)
    save_each_step(monkeypatch)
    with pytest.raises(Stop):
        train(config, tmp_path, threads=2, checkpoint_every=0.0)
    assert torch.get_num_threads() == before
    record = train(config, tmp_path, threads=1)
    assert set(seen) == {2} and record["environment"]["threads"] == 2 and torch.get_num_threads() == before


def test_a_run_leaves_the_global_generator_alone_and_does_not_depend_on_it(tmp_path):
    config = toy(model=TOY)
    torch.manual_seed(1)
    expected = torch.get_rng_state()
    train(config, tmp_path / "a")
    assert torch.equal(torch.get_rng_state(), expected)
    torch.manual_seed(2)
    train(config, tmp_path / "b")
    assert numbers(tmp_path / "a") == numbers(tmp_path / "b")


def test_weights_and_order_depend_on_the_seed_alone():
    seen, model = {}, TOY
    for optimizer in ("adam", "madam", "marginal", "mtadam", "adatask", "madam:estimator=pair"):
        for seed in (0, 1):
            training = start(toy(optimizer=optimizer, seed=seed, model=model))
            initial = [p.detach().clone() for p in training.model.parameters()]
            orders = []
            while not training.ended:
                training.advance()
                orders.append(training.batches.order.tolist())
            seen.setdefault(seed, []).append((torch.cat([p.flatten() for p in initial]).tolist(), orders))
    for runs in seen.values():
        assert all(run == runs[0] for run in runs)
    assert seen[0][0][0] != seen[1][0][0] and seen[0][0][1] != seen[1][0][1]


def test_an_epoch_is_a_permutation_cut_into_whole_batches(monkeypatch):
    config = toy(batch=8)  # 50 rows: six batches, two rows left over
    training = start(config)
    batches = []
    monkeypatch.setattr(
        training.batches, "prepare", lambda batch, generator: batches.append((len(batch), generator)) or batch
    )
    training.advance()
    assert training.batches.steps == 6 and sorted(training.batches.order.tolist()) == list(range(50))
    assert batches[0][0] == 8 and batches[0][1] is training.generator
    assert start(toy(batch=1000)).batches.steps == 1, "a batch larger than the data is all the data"


def test_losses_and_metrics_of_an_evaluation_are_those_of_the_whole_split():
    """In one batch or in many, of unequal sizes; against plain loops."""
    for batch in (1, 3, 50):
        training = start(toy(batch=batch))
        split = training.data.validation
        metrics, losses = training.evaluate("validation")
        with torch.no_grad():
            value, logits = training.model(split.inputs)
        squares = [(float(v) - float(t)) ** 2 for v, t in zip(value, split.targets[0], strict=True)]
        entropies, right = [], 0
        for z, t in zip(logits.tolist(), split.targets[1].tolist(), strict=True):
            entropies.append(math.log(sum(map(math.exp, z))) - z[t])
            right += (z[1] > z[0]) == bool(t)
        assert metrics["error"] == pytest.approx(sum(squares) / 20, rel=1e-5)
        assert metrics["right"] == pytest.approx(right / 20)
        assert losses == pytest.approx([sum(squares) / 20, sum(entropies) / 20], rel=1e-5)
        assert training.model.training


def test_the_loss_of_an_epoch_is_the_mean_over_its_steps():
    training = start(toy(model=TOY))
    losses, benchmark = [], training.benchmark
    plain = benchmark.criteria

    def noting(outputs, targets):
        found = plain(outputs, targets)
        if training.model.training:
            losses.append([x.item() for x in found])
        return found

    benchmark.criteria = noting
    while not training.advance():
        pass
    assert len(losses) == 6
    assert training.epochs[0]["train_losses"] == pytest.approx(
        [sum(column) / 6 for column in zip(*losses, strict=True)]
    )


PLAYED = """
class Played(Toy):
    '''Metrics are read from a script, whatever the model does.'''
    validation, test = {validation}, {test}
    profiles = {{"cpu": Profile(len(validation), 50, 1e-2, "mlp:depth=1:width=2", threads=1, keep={keep!r})}}
    metrics = (Metric("score", {higher}),)
    count = 0

    def tally(self, outputs, targets):
        return {{"test": (targets[0] == 7.0).all()}}

    def split(self, count, generator):
        split = super().split(count, generator)
        self.made = getattr(self, "made", 0) + 1
        return Split(split.inputs, (torch.full((count,), 7.0 if self.made == 3 else 0.0), split.targets[1]))

    def summarise(self, tally):
        if tally["test"]:
            return {{"score": self.test[self.count - 1]}}
        self.count += 1
        return {{"score": self.validation[self.count - 1]}}

BENCHMARKS = {{"played": Played}}
"""
NAN = 'float("nan")'


@pytest.mark.parametrize(
    ("validation", "test", "higher", "keep", "epoch"),
    [
        ("[1, 5, 3]", "[9, 0, 99]", True, "best", 2),  # by test data it would be the third
        ("[5, 1, 3]", "[0, 9, -9]", False, "best", 2),
        ("[5, 5, 5]", "[1, 2, 3]", True, "best", 1),  # of equals the first
        ("[5, 1, 3]", "[1, 2, 3]", True, "last", 3),
        (f"[1, 5, {NAN}]", "[1, 2, 3]", True, "best", None),  # diverged
        (f"[1, 5, {NAN}]", "[1, 2, 3]", True, "last", None),
        ("[1, 5, 3]", f"[1, {NAN}, 3]", True, "best", None),  # validation chose, and what it chose is not a number
        ("[1, 5, 3]", f"[{NAN}, 2, {NAN}]", True, "best", 2),
        ("[1, 5, 3]", f"[1, 2, {NAN}]", True, "last", None),
    ],
)
def test_validation_data_alone_choose_the_epoch(tmp_path, validation, test, higher, keep, epoch):
    config = configure(own(tmp_path, PLAYED.format(validation=validation, test=test, higher=higher, keep=keep)))
    record = train(config, tmp_path / "run")
    assert record["epoch"] == epoch
    if epoch is None:
        assert record["status"] == "diverged" and record["metrics"] is None and record["validation"] is None
    else:
        assert record["status"] == "finished"
        assert record["metrics"] == {"score": eval(test, {"nan": math.nan})[epoch - 1]}
        assert record["validation"] == {"score": eval(validation)[epoch - 1]}
    found = numbers(tmp_path / "run")  # strict JSON, NaN or not
    assert len(found["rows"]) == 3 and train(config, tmp_path / "run")["status"] == record["status"]


@pytest.mark.filterwarnings("ignore:a loss.*not finite:UserWarning")
@pytest.mark.parametrize("optimizer", ["adam", "madam", "mtadam", "adatask"])
def test_a_diverged_run_says_so_and_is_not_repeated(tmp_path, optimizer):
    config = toy(optimizer=optimizer, lr=1e30)
    record = train(config, tmp_path)
    found = numbers(tmp_path)
    assert record["status"] == "diverged" and record["metrics"] is None
    assert len(found["rows"]) < 3 or found["rows"][-1]["validation_loss"] is None
    assert found["losses"][-1] is None
    assert train(config, tmp_path, report=lambda row: pytest.fail("repeated"))["status"] == "diverged"


def test_a_record_tells_all_that_identifies_a_run_and_its_costs_apart(tmp_path):
    record = train(toy(profile="best"), tmp_path)
    assert record["config"] == asdict(toy(profile="best")) and record["resumed_from"] is None
    assert record["objectives"] == ["sum", "sign"] and record["reductions"] == []
    assert record["parameters"] == 3 * 4 + 4 + (4 + 1) + (8 + 2)
    assert record["steps"] == 18 and record["refused_steps"] == 0
    cost = record["cost"]
    assert cost["seconds"] > 0 and cost["state_bytes"] >= 2 * 4 * record["parameters"]
    assert [second for second, _ in cost["curve"]] == sorted(second for second, _ in cost["curve"])
    assert cost["clock"] == "processor"
    epochs, _ = read_rows(tmp_path / "epochs.jsonl")
    assert cost["training"] == [[e["step"], e["seconds"], sum(e["train_losses"]) / 2] for e in epochs]
    assert set(record["metrics"]) == {"error", "right"}


def test_seconds_are_processor_time_where_one_thread_of_a_processor_works(tmp_path):
    """Waiting is not work; on several threads processor time would count each of them."""
    file = own(tmp_path, "import time\nToy.batches_ = Toy.batches\n\ndef wait(self, data, size):\n"
               "    found = self.batches_(data, size)\n    draw = found.draw\n    found.draw = lambda *a: "
               "(time.sleep(0.02), draw(*a))[1]\n    return found\n\nToy.batches = wait\n")  # fmt: skip
    config = configure(file, epochs=1)
    one = train(config, tmp_path / "one", threads=1)["cost"]
    two = train(config, tmp_path / "two", threads=2)["cost"]
    assert one["clock"] == "processor" and two["clock"] == "wall"
    assert two["seconds"] >= 6 * 0.02


def test_an_error_in_the_benchmark_frees_the_folder(tmp_path):
    config = configure(own(tmp_path, "def fail(*_):\n    raise KeyError('mine')\n\nToy.criteria = fail\n"))
    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            train(config, tmp_path / "run")
    with RunFolder(tmp_path / "run").locked():
        pass


def test_profiles_say_which_epoch_counts():
    with pytest.raises(ValueError, match="keep must be 'last' or 'best', got 'first'"):
        Profile(1, 1, 1.0, "mlp", keep="first")
    assert replace(Profile(1, 1, 1.0, "mlp"), keep="best").keep == "best"
