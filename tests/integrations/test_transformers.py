"""Hugging Face's Trainer on two objectives: a small Llama made from its configuration, beside a loop by hand."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn.functional import kl_div
from torch.utils.data import DataLoader

from helpers import same, same_params
from madamoo import MAdam, MultiObjective, PreferenceMetric, solvers

transformers = pytest.importorskip("transformers", reason="Hugging Face's libraries are an extra: transformers")
accelerate = pytest.importorskip("accelerate")
peft = pytest.importorskip("peft")
from accelerate.state import AcceleratorState, GradientState  # noqa: E402

from madamoo.integrations.accelerate import prepared  # noqa: E402
from madamoo.integrations.transformers import MultiObjectiveTrainer  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning:torch")


@pytest.fixture(autouse=True)
def _own_state():
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def llama(lora=True, dropout=0.0):
    """Two layers, embeddings tied to the output; with LoRA, only the adapters train."""
    config = transformers.LlamaConfig(
        vocab_size=24,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=16,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(config)
        if not lora:
            return model
        modules = ["q_proj", "v_proj", "o_proj"]
        adapters = peft.LoraConfig(r=4, lora_alpha=16, lora_dropout=dropout, target_modules=modules)
        return peft.get_peft_model(model, adapters)


def texts(count=24):
    """Sequences of different length that count upwards, so that there is something to learn."""
    generator = torch.Generator().manual_seed(3)
    starts, lengths = (torch.randint(*limits, (count,), generator=generator) for limits in ((1, 24), (3, 12)))
    return [{"input_ids": [1 + int(s + k) % 23 for k in range(int(n))]} for s, n in zip(starts, lengths, strict=True)]


def collate(rows):
    longest = max(len(row["input_ids"]) for row in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for k, row in enumerate(rows):
        ids[k, : len(row["input_ids"])] = torch.tensor(row["input_ids"])
        mask[k, : len(row["input_ids"])] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def objectives(model, inputs, count):
    """The language model's own loss, and how far each prediction is from the model without the adapters."""
    outputs = model(**inputs, num_items_in_batch=count)
    if hasattr(model, "disable_adapter"):
        with torch.no_grad(), model.disable_adapter():
            before = model(**inputs).logits[:, :-1]
    else:
        before = torch.zeros_like(outputs.logits[:, :-1])
    counted = inputs["labels"][:, 1:] != -100
    logs = outputs.logits[:, :-1].log_softmax(-1), before.log_softmax(-1)
    near = kl_div(*logs, log_target=True, reduction="none").sum(-1)[counted].sum() / count
    return {"task": outputs.loss, "near": near}, outputs


class Finetuning(MultiObjectiveTrainer):
    def compute_objectives(self, model, inputs, num_items_in_batch=None):
        return objectives(model, inputs, num_items_in_batch)


def arguments(folder, **options):
    options = {"max_steps": 6, "learning_rate": 1e-2, "weight_decay": 0.1, "per_device_train_batch_size": 4, **options}
    return transformers.TrainingArguments(
        output_dir=str(folder),
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        train_sampling_strategy="sequential",
        **{"save_strategy": "no", "logging_steps": 1, **options},
    )


def trainer(model, folder, solver="cagrad", kind=Finetuning, metric=None, **options):
    chosen = arguments(folder, **options)
    common = {"train_dataset": texts(), "data_collator": collate}
    metric = PreferenceMetric(rampup=5) if metric is None else metric
    return kind(model, chosen, **common, solver=solver, metric=metric)


def by_hand(model, solver="cagrad", batch=4, parts=1, steps=6, max_norm=1.0, dtype=None):
    """The oracle: Adam with Hugging Face's groups and schedule, and nothing else of it."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    groups = [
        {"params": [p for name, p in named if "norm" not in name], "weight_decay": 0.1},
        {"params": [p for name, p in named if "norm" in name], "weight_decay": 0.0},
    ]
    adam = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.999), eps=1e-8, fused=True)
    opt = MultiObjective(adam, solver, PreferenceMetric(rampup=5), max_norm=max_norm)
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda k: max(0.0, 1 - k / steps))
    if dtype is not None:
        model.forward = in_low_precision(model.forward, dtype)
    batches = list(DataLoader(texts(), batch, collate_fn=collate))
    model.train()
    for k in range(steps):
        chosen = [batches[(k * parts + i) % len(batches)] for i in range(parts)]
        count = sum((inputs["labels"][:, 1:] != -100).sum() for inputs in chosen)
        opt.zero_grad()
        for inputs in chosen:
            opt.backward(objectives(model, inputs, count)[0])
        opt.step()
        schedule.step()
    return opt


def in_low_precision(forward, dtype):
    """The forward pass under autocast, its results in float32, as Accelerate has it."""

    def wrapped(*args, **kwargs):
        with torch.autocast("cpu", dtype):
            outputs = forward(*args, **kwargs)
        outputs.logits = outputs.logits.float()
        return outputs

    return wrapped


def state(opt):
    """Of the metric and the solver; group settings are the framework's."""
    return opt.state_dict()["multi_objective"]


@pytest.mark.parametrize("parts", [1, 2])
def test_lora_on_two_objectives_is_the_loop_by_hand(tmp_path, parts):
    net, other = llama(), llama()
    start = copy.deepcopy(net.state_dict())
    run = trainer(net, tmp_path, gradient_accumulation_steps=parts, max_grad_norm=0.5)
    run.train()
    opt = by_hand(other, parts=parts, max_norm=0.5)
    assert same_params(net, other) and same(state(prepared(run.optimizer)), state(opt))
    moved = {name for name, x in net.state_dict().items() if not torch.equal(x, start[name])}
    assert moved and all("lora_" in name for name in moved)
    last = [row for row in run.state.log_history if "loss" in row][-1]
    assert {name: last[f"weight/{name}"] for name in ("task", "near")} == opt.weights_by_name
    assert {name: last[f"objective/{name}"] for name in ("task", "near")} == opt.losses_by_name
    assert last["loss"] == pytest.approx(sum(opt.losses_by_name.values()), rel=1e-6)


def test_accumulation_is_a_larger_batch_whatever_the_padding(tmp_path):
    """Tokens count alike in every micro-batch: that is what num_items_in_batch is for."""
    net, large = llama(), llama()
    trainer(net, tmp_path, per_device_train_batch_size=2, gradient_accumulation_steps=4, max_steps=3).train()
    trainer(large, tmp_path, per_device_train_batch_size=8, max_steps=3).train()
    torch.testing.assert_close(list(net.parameters()), list(large.parameters()), rtol=1e-3, atol=1e-5)


def test_tied_weights(tmp_path):
    """All weights train; the embedding is the output matrix too, and both objectives reach it both ways."""
    net, other = llama(lora=False), llama(lora=False)
    run = trainer(net, tmp_path, solver="uw")
    run.train()
    by_hand(other, solver="uw")
    assert same_params(net, other)
    assert net.lm_head.weight is net.model.embed_tokens.weight
    held = [id(p) for group in run.optimizer.param_groups for p in group["params"]]
    assert held.count(id(net.lm_head.weight)) == 1
    assert not torch.equal(net.lm_head.weight, llama(lora=False).lm_head.weight)


def test_a_run_resumes_from_its_checkpoint(tmp_path):
    """With dropout, and a solver that draws: every generator goes on where it was."""
    options = {"solver": "rlw", "save_strategy": "steps", "save_steps": 3}
    net = llama(dropout=0.2)
    unbroken = trainer(net, tmp_path / "one", **options)
    unbroken.train()
    again = llama(dropout=0.2)
    run = trainer(again, tmp_path / "two", **options)
    run.train(resume_from_checkpoint=str(tmp_path / "one" / "checkpoint-3"))
    assert same_params(net, again) and run.state.global_step == 6
    assert same(state(prepared(run.optimizer)), state(prepared(unbroken.optimizer)))


def test_bfloat16(tmp_path):
    net, other = llama(), llama()
    trainer(net, tmp_path, bf16=True).train()
    by_hand(other, dtype=torch.bfloat16)
    assert same_params(net, other)


def test_gradient_checkpointing(tmp_path):
    net, other = llama(), llama()
    trainer(net, tmp_path, gradient_checkpointing=True, max_steps=3).train()
    trainer(other, tmp_path, max_steps=3).train()
    torch.testing.assert_close(list(net.parameters()), list(other.parameters()), rtol=1e-4, atol=1e-6)


def test_constant_weights_without_a_metric_are_the_plain_trainer(tmp_path):
    """Hugging Face's own Trainer on the sum is the oracle, its clipping included."""

    class Plain(transformers.Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            losses, outputs = objectives(model, inputs, num_items_in_batch)
            return (sum(losses.values()), outputs) if return_outputs else sum(losses.values())

    net, other = llama(), llama()
    options = {"gradient_accumulation_steps": 2, "max_grad_norm": 0.2}
    common = {"train_dataset": texts(), "data_collator": collate}
    weights = solvers.LS({"task": 1.0, "near": 1.0})
    run = Finetuning(net, arguments(tmp_path, **options), **common, solver=weights, metric=None)
    plain = Plain(other, arguments(tmp_path, **options), **common)
    run.train()
    plain.train()
    torch.testing.assert_close(list(net.parameters()), list(other.parameters()), rtol=1e-4, atol=1e-6)
    for ours, theirs in zip(run.state.log_history[:-1], plain.state.log_history[:-1], strict=True):
        for name in ("loss", "grad_norm", "learning_rate"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-4)


def test_it_learns_and_evaluates(tmp_path):
    net = llama()
    run = trainer(net, tmp_path, max_steps=40, learning_rate=3e-2, logging_steps=39)
    before = run.evaluate(texts(8))["eval_loss"]
    run.train()
    with torch.no_grad():
        inputs = collate(texts(8))
        losses, _ = objectives(net.eval(), inputs, (inputs["labels"][:, 1:] != -100).sum())
    after = run.evaluate(texts(8))["eval_loss"]
    assert after == pytest.approx(float(sum(losses.values())), rel=1e-5)
    assert losses["task"] < before - 0.1 and losses["near"] > 0
    assert run.predict(texts(8)).predictions.shape[::2] == (8, 24)
    run.train()  # once more: the optimizer is still the one that was prepared
    assert isinstance(prepared(run.optimizer).optimizer, torch.optim.AdamW)


class Heads(torch.nn.Module):
    """A model of the user's own, which knows nothing of num_items_in_batch."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.trunk, self.heads = torch.nn.Linear(3, 5), torch.nn.Linear(5, 2)

    def forward(self, x):
        return self.heads(self.trunk(x).tanh())


def test_means_are_divided_by_the_micro_batches_of_their_step(tmp_path):
    """Of 10 batches, three per step: the last step of an epoch has one."""
    generator = torch.Generator().manual_seed(0)
    data = [{"x": x, "y": x[:2].sin()} for x in torch.randn(20, 3, generator=generator)]

    class Means(MultiObjectiveTrainer):
        def compute_objectives(self, model, inputs, num_items_in_batch=None):
            assert num_items_in_batch is None
            outputs = model(inputs["x"])
            return list((outputs - inputs["y"]).square().mean(0)), {"outputs": outputs}

    options = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3, "remove_unused_columns": False}
    chosen = arguments(tmp_path, max_steps=8, lr_scheduler_type="constant", max_grad_norm=0, **options)
    net, other = Heads(), Heads()
    Means(net, chosen, train_dataset=data, solver=solvers.LS([1.0, 3.0]), metric=None).train()
    groups = [
        {"params": [other.trunk.weight, other.heads.weight], "weight_decay": 0.1},
        {"params": [other.trunk.bias, other.heads.bias], "weight_decay": 0.0},
    ]
    opt = MultiObjective(torch.optim.AdamW(groups, 1e-2), solvers.LS([1.0, 3.0]))
    for _ in range(2):
        for first in range(0, 20, 6):
            parts = [data[k : k + 2] for k in range(first, min(first + 6, 20), 2)]
            opt.zero_grad()
            for part in parts:
                x, y = (torch.stack([row[key] for row in part]) for key in "xy")
                opt.backward(list((other(x) - y).square().mean(0) / len(parts)))
            opt.step()
    torch.testing.assert_close(list(net.parameters()), list(other.parameters()), rtol=1e-5, atol=1e-7)


def test_what_cannot_work_is_refused(tmp_path, monkeypatch):
    net = llama()
    with pytest.raises(TypeError, match=r"optimizers must hold a torch optimizer, .* got MAdam"):
        Finetuning(net, arguments(tmp_path), optimizers=(MAdam(net.parameters()), None))
    with pytest.raises(NotImplementedError, match="MultiObjectiveTrainer must define compute_objectives"):
        trainer(net, tmp_path, kind=MultiObjectiveTrainer).train()
    monkeypatch.setattr(accelerate.Accelerator, "distributed_type", accelerate.DistributedType.DEEPSPEED)
    with pytest.raises(ValueError, match="DEEPSPEED is not supported: DeepSpeed runs the backward pass of one loss"):
        trainer(net, tmp_path)


def test_the_plain_trainer_around_our_optimizer_is_noticed(tmp_path):
    net = llama()
    opt = MAdam([p for p in net.parameters() if p.requires_grad])
    run = transformers.Trainer(
        net, arguments(tmp_path, max_steps=2), train_dataset=texts(), data_collator=collate, optimizers=(opt, None)
    )
    with pytest.warns(UserWarning, match=r"without opt\.backward\(losses\): .* see madamoo\.integrations"):
        run.train()
