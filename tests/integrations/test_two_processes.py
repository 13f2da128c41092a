"""Frameworks that start two processes: as one process with the batches of both."""

from __future__ import annotations

import multiprocessing
import os

import pytest
import torch
from torch import distributed
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from helpers import Net
from madamoo import MAdam, PreferenceMetric, solvers

FORK = multiprocessing.get_context("fork")  # everything is imported already


def data():
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(48, 4, generator=generator), torch.randn(48, 2, generator=generator))


def build(solver="cagrad"):
    net = Net(2, torch.float32)
    return net, MAdam(net.parameters(), 1e-2, solver=solver, metric=PreferenceMetric(rampup=5))


def losses(model, batch):
    x, y = batch
    return {name: (out - y[:, i]).square().mean() for i, (name, out) in enumerate(zip("ab", model(x), strict=True))}


def alone(solver="cagrad", size=8, parts=1):
    """The oracle: one process, one loop."""
    net, opt = build(solver)
    for k, batch in enumerate(DataLoader(data(), size)):
        opt.backward({name: loss / parts for name, loss in losses(net, batch).items()})
        if (k + 1) % parts == 0:
            opt.step()
            opt.zero_grad()
    return net.state_dict()


def on_two_ranks(work, folder):
    """``work(rank)`` in two processes of one group; what each of them returns."""

    def serve(rank):
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
        distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
        torch.save(work(rank), folder / f"{rank}.pt")
        distributed.destroy_process_group()

    processes = [FORK.Process(target=serve, args=(rank,), daemon=True) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


def check(found, wanted):
    assert all(torch.equal(found[0][name], found[1][name]) for name in wanted)  # replicas stay replicas
    torch.testing.assert_close(dict(found[0]), dict(wanted), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore::UserWarning:pytorch_lightning", "ignore::FutureWarning")
@pytest.mark.parametrize("solver, parts", [("cagrad", 1), ("uw", 3)])
def test_lightning(tmp_path, solver, parts):
    pl = pytest.importorskip("pytorch_lightning")
    from madamoo.integrations.lightning import SeveralLosses

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.opt = build(solver)

        def train_dataloader(self):
            trainer, rows = self.trainer, data()
            return DataLoader(rows, 4, sampler=DistributedSampler(rows, 2, trainer.global_rank, shuffle=False))

        def training_step(self, batch, batch_idx):
            return losses(self.net, batch)

        def configure_optimizers(self):
            return self.opt

        def on_train_end(self):
            torch.save(self.net.state_dict(), tmp_path / f"{self.global_rank}.pt")

    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary", "use_distributed_sampler")
    options = {
        "accelerator": "cpu",
        "devices": 2,
        "strategy": "ddp_fork",
        "max_epochs": 1,
        **dict.fromkeys(quiet, False),
    }
    pl.Trainer(accumulate_grad_batches=parts, callbacks=[SeveralLosses()], **options).fit(Module())
    check([torch.load(tmp_path / f"{rank}.pt") for rank in range(2)], alone(solver, parts=parts))


@pytest.mark.parametrize("parts", [1, 3])
def test_accelerate(tmp_path, parts):
    accelerate = pytest.importorskip("accelerate")
    from madamoo.integrations.accelerate import backward

    def work(rank):
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=parts)
        net, opt = build()
        model, opt, loader = accelerator.prepare(net, opt, DataLoader(data(), 4))  # its ranks take turns
        for batch in loader:
            with accelerator.accumulate(model):
                backward(accelerator, opt, losses(model, batch))
                opt.step()
                opt.zero_grad()
        assert accelerator.num_processes == 2
        return net.state_dict()

    check(on_two_ranks(work, tmp_path), alone(parts=parts))


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning:torch")
@pytest.mark.parametrize("metric", [True, False])
def test_transformers(tmp_path, metric):
    """Labels are counted over processes and micro-batches: two by two batches of two are one of eight."""
    transformers = pytest.importorskip("transformers")
    from madamoo.integrations.transformers import MultiObjectiveTrainer

    class Two(MultiObjectiveTrainer):
        def compute_objectives(self, model, inputs, num_items_in_batch=None):
            outputs = model(**inputs, num_items_in_batch=num_items_in_batch)
            counted = inputs["labels"][:, 1:] != -100
            flat = -outputs.logits[:, :-1].log_softmax(-1).mean(-1)
            return {"task": outputs.loss, "flat": flat[counted].sum() / num_items_in_batch}, outputs

    sizes = {
        "vocab_size": 16,
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
    }

    def train(folder, **options):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            net = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
            ids = torch.randint(16, (24, 6))
        lengths = [2 + k % 5 for k in range(24)]
        rows = [
            {"input_ids": x, "labels": x.where(torch.arange(6) < n, -100)} for x, n in zip(ids, lengths, strict=True)
        ]
        arguments = transformers.TrainingArguments(
            str(folder),
            max_steps=3,
            max_grad_norm=0.1,
            learning_rate=1e-2,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
            save_strategy="no",
            train_sampling_strategy="sequential",
            **options,
        )
        chosen = {"solver": "cagrad"} if metric else {"solver": solvers.LS({"task": 1.0, "flat": 2.0}), "metric": None}
        Two(net, arguments, train_dataset=rows, **chosen).train()
        return net.state_dict()

    def work(rank):
        return train(tmp_path, per_device_train_batch_size=2, gradient_accumulation_steps=2, ddp_backend="gloo")

    found = on_two_ranks(work, tmp_path)
    check(found, train(tmp_path, per_device_train_batch_size=8))
