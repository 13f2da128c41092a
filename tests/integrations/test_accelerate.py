"""Accelerate with several losses: each run beside the loop that one would write by hand."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from helpers import Net, same, same_params
from madamoo import MAdam, PreferenceMetric

accelerate = pytest.importorskip("accelerate", reason="Accelerate is an extra: accelerate")
from accelerate.state import AcceleratorState, GradientState  # noqa: E402
from accelerate.utils import DistributedType  # noqa: E402

from madamoo.integrations.accelerate import backward  # noqa: E402


@pytest.fixture(autouse=True)
def _own_state():
    """Accelerate's settings are one object per process."""
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def build(solver):
    net = Net(2, torch.float32)
    return net, MAdam(net.parameters(), 1e-2, solver=solver, metric=PreferenceMetric(rampup=5))


def losses(model, batch):
    x, y = batch
    return {name: (out - y[:, i]).square().mean() for i, (name, out) in enumerate(zip("ab", model(x), strict=True))}


def loader(batch_size=8):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(48, 4, generator=generator), torch.randn(48, 2, generator=generator)
    return DataLoader(TensorDataset(x, y), batch_size)


def train(accelerator, net, opt, epochs=2, clip=None, batch_size=8):
    model, opt, data = accelerator.prepare(net, opt, loader(batch_size))
    for _ in range(epochs):
        for batch in data:
            with accelerator.accumulate(model):
                with accelerator.autocast():
                    found = losses(model, batch)
                backward(accelerator, opt, found)
                if clip is not None and accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), clip)
                opt.step()
                opt.zero_grad()
    return opt


def by_hand(net, opt, epochs=2, parts=1, clip=None, batch_size=8, dtype=None, scaler=None):
    """The oracle: no Accelerate in it."""
    for _ in range(epochs):
        for k, batch in enumerate(loader(batch_size)):
            with torch.autocast("cpu", dtype, enabled=dtype is not None):
                found = losses(net, batch)
            opt.backward({name: loss / parts for name, loss in found.items()} if parts > 1 else found, scaler=scaler)
            if (k + 1) % parts:
                continue
            if scaler is not None and clip is not None:
                scaler.unscale_(opt)
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
            if scaler is None:
                opt.step()
            else:
                scaler.step(opt)
                scaler.update()
            opt.zero_grad()


@pytest.mark.parametrize("solver", ["cagrad", "uw"])
def test_a_run_is_the_loop_by_hand(solver):
    (net, opt), (other, reference) = build(solver), build(solver)
    train(accelerate.Accelerator(cpu=True), net, opt, clip=0.5)
    by_hand(other, reference, clip=0.5)
    assert same_params(net, other) and same(opt.state_dict(), reference.state_dict())
    assert not same_params(net, Net(2, torch.float32))


def test_accumulation():
    (net, opt), (other, reference), (large, whole) = (build("cagrad") for _ in range(3))
    train(accelerate.Accelerator(cpu=True, gradient_accumulation_steps=3), net, opt)
    by_hand(other, reference, parts=3)
    assert same_params(net, other)
    by_hand(large, whole, batch_size=24)
    torch.testing.assert_close(list(net.parameters()), list(large.parameters()), rtol=1e-4, atol=1e-6)


def test_bfloat16():
    (net, opt), (other, reference) = build("cagrad"), build("cagrad")
    train(accelerate.Accelerator(cpu=True, mixed_precision="bf16"), net, opt)
    by_hand(other, reference, dtype=torch.bfloat16)
    assert same_params(net, other)


def test_a_scaler_that_skips_the_first_steps():
    """Accelerate makes its scaler on a GPU only; what it does with one is the same on a CPU."""
    scalers = [torch.amp.GradScaler("cpu", 2.0**127, growth_interval=100) for _ in range(2)]
    (net, opt), (other, reference) = build("uw"), build("uw")
    accelerator = accelerate.Accelerator(cpu=True)
    accelerator.scaler = scalers[0]
    wrapped = train(accelerator, net, opt, epochs=3)
    by_hand(other, reference, epochs=3, scaler=scalers[1])
    assert same_params(net, other) and same(opt.state_dict(), reference.state_dict())
    assert scalers[0].get_scale() == scalers[1].get_scale() < 2.0**127 and not wrapped.step_was_skipped
    assert not same_params(net, Net(2, torch.float32))


def test_saved_state_resumes(tmp_path):
    net, opt = build("rlw")
    train(accelerate.Accelerator(cpu=True), net, opt, epochs=4)
    first, first_opt = build("rlw")
    accelerator = accelerate.Accelerator(cpu=True)
    train(accelerator, first, first_opt, epochs=2)
    accelerator.save_state(tmp_path)
    second, second_opt = build("rlw")
    torch.nn.init.zeros_(second.trunk[0].weight)
    other = accelerate.Accelerator(cpu=True)
    other.prepare(second, second_opt, loader())
    other.load_state(tmp_path)
    other.free_memory()
    train(other, second, second_opt, epochs=2)
    assert same_params(net, second) and same(opt.state_dict(), second_opt.state_dict())


@pytest.mark.parametrize("kind", ["DEEPSPEED", "FSDP", "MEGATRON_LM"])
def test_what_takes_the_backward_pass_is_refused(kind):
    net, opt = build("uw")
    accelerator = accelerate.Accelerator(cpu=True)
    opt = accelerator.prepare(opt)
    accelerator.state.distributed_type = DistributedType[kind]
    with pytest.raises(ValueError, match=f"{kind} is not supported: .* several losses need passes of their own"):
        backward(accelerator, opt, net.losses(0))


def test_another_optimizer_is_refused():
    net, _ = build("uw")
    accelerator = accelerate.Accelerator(cpu=True)
    for plain in (torch.optim.Adam(net.parameters()), accelerator.prepare(torch.optim.Adam(net.parameters()))):
        with pytest.raises(TypeError, match="must be a MAdam or MultiObjective, got Adam"):
            backward(accelerator, plain, net.losses(0))
