"""Lightning with several losses: each run beside the loop that one would write by hand."""

from __future__ import annotations

import csv
import importlib
import logging
import sys
import warnings

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from helpers import same, same_params
from madamoo import MAdam, PreferenceMetric, diagnostics
from madamoo.relatives import AdaTask

pl = pytest.importorskip("pytorch_lightning", reason="Lightning is an extra: lightning")
from pytorch_lightning.plugins import MixedPrecision  # noqa: E402
from pytorch_lightning.strategies import SingleDeviceStrategy  # noqa: E402

from madamoo.integrations.lightning import SeveralLosses, backward  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pytorch_lightning", "ignore::FutureWarning")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


def loader(batch_size=8):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(48, 4, generator=generator), torch.randn(48, 2, generator=generator)
    return DataLoader(TensorDataset(x, y), batch_size)


class Net(pl.LightningModule):
    """Two heads on a trunk; as Lightning users write it, but for what ``training_step`` returns."""

    def __init__(self, solver="cagrad", form=dict, **options):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.trunk, self.a, self.b = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1), torch.nn.Linear(8, 1)
        self.solver, self.form, self.options = solver, form, options
        self.seen = []

    def losses(self, batch):
        x, y = batch
        h = self.trunk(x).tanh()
        a, b = (self.a(h)[:, 0] - y[:, 0]).square().mean(), (self.b(h)[:, 0] - y[:, 1]).abs().mean()
        return {"a": a, "b": b} if self.form is dict else self.form([a, b])

    def training_step(self, batch, batch_idx):
        return self.losses(batch)

    def configure_optimizers(self):
        opt = MAdam(self.parameters(), 1e-2, solver=self.solver, metric=PreferenceMetric(rampup=5), **self.options)
        return [opt], [torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)]

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.seen.append(outputs)


def fit(net, epochs=2, data=None, ckpt_path=None, callbacks=None, **options):
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    options = {**dict.fromkeys(quiet, False), "accelerator": "cpu", "max_epochs": epochs, **options}
    trainer = pl.Trainer(callbacks=[SeveralLosses()] if callbacks is None else callbacks, **options)
    trainer.fit(net, data or loader(), ckpt_path=ckpt_path)
    return trainer


def by_hand(net, epochs=2, data=None, parts=1, autocast=None, scaler=None, clip=None):
    """The oracle: no Lightning in it."""
    (opt,), (schedule,) = net.configure_optimizers()
    for _ in range(epochs):
        for k, batch in enumerate(data or loader()):
            with torch.autocast("cpu", autocast, enabled=autocast is not None, cache_enabled=False):
                losses = net.losses(batch)
            if k % parts == 0:
                opt.zero_grad()
            opt.backward({name: loss / parts for name, loss in losses.items()} if parts > 1 else losses, scaler=scaler)
            if (k + 1) % parts:
                continue
            if scaler is not None:
                scaler.unscale_(opt)
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
            if scaler is None:
                opt.step()
            else:
                scaler.step(opt)
                scaler.update()
        schedule.step()
    return opt


@pytest.mark.parametrize("form", [dict, list, torch.stack])
@pytest.mark.parametrize("solver", ["cagrad", "uw", "pcgrad"])
def test_a_run_is_the_loop_by_hand(solver, form):
    net, other = Net(solver, form), Net(solver, form)
    trainer = fit(net)
    opt = by_hand(other)
    assert same_params(net, other) and same(trainer.optimizers[0].state_dict(), opt.state_dict())
    assert not same_params(net, Net())  # it has moved
    assert trainer.global_step == 12


def test_hooks_see_the_losses():
    net = Net()
    fit(net, epochs=1)
    first = Net().losses(next(iter(loader())))
    outputs = net.seen[0]
    assert same(outputs["objectives"], {name: loss.detach() for name, loss in first.items()})
    assert not any(loss.requires_grad for loss in outputs["objectives"].values())
    assert float(outputs["loss"]) == sum(first.values()).item()


def test_accumulation():
    net, other, large = Net(), Net(), Net()
    fit(net, accumulate_grad_batches=3)
    by_hand(other, parts=3)
    assert same_params(net, other)
    by_hand(large, data=loader(24))
    torch.testing.assert_close(list(net.parameters()), list(large.parameters()), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
def test_mixed_precision(precision):
    """The first scale overflows float16: the scaler skips that step, in both loops."""
    dtype = torch.bfloat16 if precision == "bf16-mixed" else torch.float16
    scalers = [None if precision == "bf16-mixed" else torch.amp.GradScaler("cpu", 2.0**18) for _ in range(2)]
    net, other = Net(), Net()
    trainer = fit(net, plugins=[MixedPrecision(precision, "cpu", scalers[0])])
    opt = by_hand(other, autocast=dtype, scaler=scalers[1])
    assert same_params(net, other) and same(trainer.optimizers[0].state_dict(), opt.state_dict())
    if scalers[0] is not None:
        assert scalers[0].get_scale() == scalers[1].get_scale() < 2.0**18
        assert opt.skipped > 0


def test_clipping():
    net, other, free = Net(), Net(), Net()
    fit(net, gradient_clip_val=0.05)
    by_hand(other, clip=0.05)
    by_hand(free)
    assert same_params(net, other) and not same_params(net, free)
    net, other = Net(max_norm=0.1), Net(max_norm=0.1)
    fit(net)
    by_hand(other)
    assert same_params(net, other) and not same_params(net, free)


@pytest.mark.parametrize("solver", ["uw", "rlw"])
def test_a_checkpoint_resumes(solver, tmp_path):
    unbroken = Net(solver)
    wanted = fit(unbroken, epochs=4)
    trainer = fit(Net(solver), epochs=2)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    resumed = Net(solver)
    with torch.random.fork_rng():
        torch.manual_seed(99)
        torch.nn.init.normal_(resumed.trunk.weight)
    trainer = fit(resumed, epochs=4, ckpt_path=tmp_path / "half.ckpt")
    assert same_params(resumed, unbroken)
    assert same(trainer.optimizers[0].state_dict(), wanted.optimizers[0].state_dict())


class Manual(Net):
    """Manual optimisation, with a preference for each step."""

    def __init__(self):
        super().__init__("preference")
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        opt = self.optimizers()
        opt.zero_grad()
        backward(self, self.losses(batch), preference=[1.0, 1.0 + batch_idx])
        opt.step()


def test_manual_optimisation():
    net, other = Manual(), Manual()
    scalers = [torch.amp.GradScaler("cpu", 1024.0) for _ in range(2)]
    fit(net, epochs=1, callbacks=[], plugins=[MixedPrecision("16-mixed", "cpu", scalers[0])])
    (opt,), _ = other.configure_optimizers()
    for k, batch in enumerate(loader()):
        opt.zero_grad()
        with torch.autocast("cpu", torch.float16):
            losses = other.losses(batch)
        opt.backward(losses, preference=[1.0, 1.0 + k], scaler=scalers[1])
        scalers[1].step(opt)
        scalers[1].update()
    assert same_params(net, other)
    assert net.optimizers().weights_by_name == opt.weights_by_name


def test_batches_without_an_objective_and_without_any():
    class Gaps(Net):
        def training_step(self, batch, batch_idx):
            losses = self.losses(batch)
            return None if batch_idx == 1 else {"a": losses["a"]} if batch_idx == 2 else losses

    net, other = Gaps("uw"), Gaps("uw")
    fit(net, epochs=1)
    (opt,), _ = other.configure_optimizers()
    for k, batch in enumerate(loader()):
        losses = other.training_step(batch, k)
        opt.zero_grad()
        if losses is not None:
            opt.backward(losses)
            opt.step()
        else:
            opt.step()  # Lightning steps all the same: without gradients nothing moves
    assert same_params(net, other)


def test_relatives_train_too():
    class Relative(Net):
        def configure_optimizers(self):
            return [AdaTask(self.parameters(), 1e-2)], []

    net, other = Relative(), Relative()
    fit(net, epochs=1)
    (opt,), _ = other.configure_optimizers()
    for batch in loader():
        opt.zero_grad()
        opt.backward(other.losses(batch))
        opt.step()
    assert same_params(net, other)


def test_a_logger_gets_the_diagnosis(tmp_path):
    class Watched(Net):
        def configure_optimizers(self):
            optimizers, schedules = super().configure_optimizers()
            self.probe = diagnostics.attach(optimizers[0], every=4, sinks=self.trainer.logger)
            return optimizers, schedules

        def on_train_end(self):
            self.probe.close()

    net, plain = Watched(), Net()
    fit(net, logger=pl.loggers.CSVLogger(tmp_path, name="", version=""))
    fit(plain)
    assert same_params(net, plain)
    with (tmp_path / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["diagnostics/weights/a"]]
    assert [int(row["step"]) for row in rows] == [0, 4, 8]
    assert [float(row["diagnostics/losses/b"]) for row in rows] == [r["losses"]["b"] for r in net.probe.rows]


def test_a_loss_that_is_summed_as_before_is_noticed():
    """Without the callback Lightning calls ``loss.backward()``: the library warns, once."""

    class Summed(Net):
        def training_step(self, batch, batch_idx):
            return sum(self.losses(batch).values())

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(Summed(), callbacks=[])
    found = [str(w.message) for w in caught if "without opt.backward(losses)" in str(w.message)]
    assert len(found) == 1 and "madamoo.integrations" in found[0]


def test_the_module_is_itself_again_after_training_and_after_an_error():
    class Broken(Net):
        broken = True

        def training_step(self, batch, batch_idx):
            if batch_idx == 2 and self.broken:
                raise RuntimeError("broken")
            return self.losses(batch)

    net, other = Broken(), Net()
    callback = SeveralLosses()
    with pytest.raises(RuntimeError, match="broken"):
        fit(net, callbacks=[callback])
    assert not {"training_step", "backward"} & set(vars(net))
    net.broken = False
    net.load_state_dict(other.state_dict())
    fit(net, callbacks=[callback])
    by_hand(other)
    assert same_params(net, other) and not {"training_step", "backward"} & set(vars(net))


class DeepSpeedStrategy(SingleDeviceStrategy):
    """Has the name of the one that needs a package which is not there."""


def test_what_cannot_work_is_refused():
    class Plain(Net):
        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    with pytest.raises(TypeError, match="must return one MAdam or MultiObjective, got Adam"):
        fit(Plain())
    with pytest.raises(ValueError, match=r"for automatic optimisation.*lightning\.backward\(self, losses\)"):
        fit(Manual(), callbacks=[SeveralLosses()])
    with pytest.raises(ValueError, match="DeepSpeedStrategy is not supported"):
        fit(Net(), strategy=DeepSpeedStrategy())


def test_import_without_lightning_names_the_extra(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "pytorch_lightning"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pytorch_lightning", None)
    monkeypatch.delitem(sys.modules, "madamoo.integrations.lightning")
    with pytest.raises(ImportError, match=r"pip install 'madamoo\[lightning\]'"):
        importlib.import_module("madamoo.integrations.lightning")
