"""What a step costs on this device, beside plain Adam's."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..metric import PreferenceMetric
from ..optimizer import MAdam
from ._problem import COUNT, draw

WARMUP = 5


def measure_speed(device: torch.device, seconds: float = 15.0, width: int | None = None) -> dict[str, float]:
    """The mean milliseconds of a step of each optimizer, by its name; plain Adam comes first.

    They take turns, so that whatever else the machine does falls on all of them alike, and each step ends when the
    device has done its work.
    """
    arms = _arms(device, width or (1024 if device.type != "cpu" else 256))
    for _ in range(WARMUP):
        for step in arms.values():
            step()
    _wait_for(device)
    total, rounds, end = dict.fromkeys(arms, 0.0), 0, time.perf_counter() + seconds
    while rounds < 5 or (time.perf_counter() < end and rounds < 200):
        for name, step in arms.items():
            start = time.perf_counter()
            step()
            _wait_for(device)
            total[name] += time.perf_counter() - start
        rounds += 1
    return {name: 1e3 * time_taken / rounds for name, time_taken in total.items()}


def _wait_for(device: torch.device) -> None:
    torch.get_device_module(device).synchronize()


def _arms(device: torch.device, width: int) -> dict[str, Callable[[], None]]:
    after_the_ramp = PreferenceMetric(rampup=0)
    eigen = PreferenceMetric(rampup=0, basis="eigen")
    return {
        "Adam": _plain_step(device, width),
        "LS + MAdam": _step(device, width, "ls", after_the_ramp),
        "CAGrad + Adam": _step(device, width, "cagrad", None),
        "CAGrad + MAdam": _step(device, width, "cagrad", PreferenceMetric("full", rampup=0)),
        "LS + MAdam, eigenbasis": _step(device, width, "ls", eigen),
    }


def _network(device: torch.device, width: int) -> tuple[nn.Module, Callable[[], Tensor]]:
    """Three layers, one output per objective, and the losses of a batch of 256."""
    net = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, COUNT))
    net.to(device, torch.float32)
    x = draw(256, 64, seed=0, device=device, dtype=torch.float32)
    y = draw(256, COUNT, seed=1, device=device, dtype=torch.float32)
    return net, lambda: (net(x) - y).square().mean(0)


def _plain_step(device: torch.device, width: int) -> Callable[[], None]:
    net, losses = _network(device, width)
    adam = torch.optim.AdamW(net.parameters(), weight_decay=0.0, fused=device.type in ("cpu", "cuda"))

    def step() -> None:
        adam.zero_grad()
        losses().mean().backward()
        adam.step()

    return step


def _step(device: torch.device, width: int, solver: str, metric: PreferenceMetric | None) -> Callable[[], None]:
    net, losses = _network(device, width)
    opt = MAdam(net.parameters(), solver=solver, metric=metric)

    def step() -> None:
        opt.zero_grad()
        opt.backward(losses())
        opt.step()

    return step
