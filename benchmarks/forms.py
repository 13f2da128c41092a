"""Where does the preference belong, once the basis is right? Forms of a step in the eigenbasis, beside SOAP.

    python benchmarks/forms.py sarcos-small:restless pinn/burgers1d:cagrad > results/forms.txt

Each form is a rule for one matrix: from the rows g_i and lambda to a step. All keep the same eigenbasis, that of the
averages of D D' and D' D; Q is the rotation into it. m is an average of d, F_ij of Q(g_i) Q(g_j), L_ij of G_i G_j',
v of Q(d)^2. C(lambda) = sum_ij lambda_i lambda_j F_ij, and L(lambda) likewise. The weights' own average has the
momentum's memory: it is the preference that the momentum stands for. With constant weights all but Shampoo's and the
ones with another momentum are SOAP, or SOAP whose momentum comes last.

A line has the metric on test data for each seed, at the rate with the best mean on validation data, the training loss
of the last epoch, and CPU seconds per run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from madamoo.bench.problems import data_root
from madamoo.bench.training import Training, configure, problem_of

BETA, EVERY, EPS = 0.95, 10, 1e-8
LEAST, MOST = 0.8, 0.98  # of an adaptive momentum
Memory = float | str  # of the momentum: its decay, or "adaptive"


class Average:
    """A moving average, corrected for its start at zero."""

    def __init__(self) -> None:
        self.sum: Any = 0.0
        self.total = 0.0

    def add(self, x: Tensor, beta: float = BETA) -> Tensor:
        self.sum = beta * self.sum + (1.0 - beta) * x
        self.total = beta * self.total + 1.0 - beta
        return self.value

    @property
    def value(self) -> Tensor:
        return self.sum / self.total


class Matrix:
    """What is kept of one parameter, as a matrix [m, n]; a vector is [1, n], and keeps its own basis."""

    def __init__(self, param: Tensor) -> None:
        self.param = param
        self.shape = (param.shape[0], param.numel() // param.shape[0]) if param.ndim > 1 else (1, param.numel())
        self.L, self.R = Average(), Average()
        self.Q: list[Tensor | None] = [None, None]
        self.kept: dict[str, Average] = {}
        self.steps = 0

    def average(self, name: str) -> Average:
        return self.kept.setdefault(name, Average())

    def turn(self, x: Tensor) -> Tensor:
        left, right = self.Q
        x = x if left is None else left.T @ x
        return x if right is None else x @ right

    def back(self, x: Tensor) -> Tensor:
        left, right = self.Q
        x = x if left is None else left @ x
        return x if right is None else x @ right.T

    def follow(self, d: Tensor) -> None:
        """The basis for the next step; averages of rotated things go with their columns."""
        self.steps += 1
        for side, (average, gram) in enumerate(((self.L, d @ d.T), (self.R, d.T @ d))):
            if d.shape[side] == 1 or self.param.ndim == 1:
                continue
            average.add(gram)
            Q = self.Q[side]
            if Q is None:
                self.Q[side] = torch.linalg.eigh(average.value).eigenvectors.flip(1)
            elif self.steps % EVERY == 0:
                turned = average.value @ Q
                order = (Q * turned).sum(0).argsort(descending=True)
                self.Q[side] = torch.linalg.qr(turned[:, order]).Q
                for name in ("v", "F"):
                    if name in self.kept:
                        kept = self.kept[name]
                        kept.sum = kept.sum.index_select(kept.sum.ndim - 2 + side, order)


def conditioned(lam: Tensor, F: Tensor) -> Tensor:
    """sum_ij lambda_i lambda_j F_ij."""
    return torch.einsum("i,j,ij...->...", lam, lam, F)


def beta_of(memory: Memory, state: Matrix, d: Tensor) -> float:
    """The momentum's decay; an adaptive one is shorter where the direction has turned away from the momentum."""
    if memory != "adaptive":
        return float(memory)
    m = state.average("m")
    same = float(cosine_similarity(m.sum.flatten(), d.flatten(), dim=0)) if m.total else 0.0
    return LEAST + (MOST - LEAST) * (1.0 + same) / 2.0


def whiten(state: Matrix, x: Tensor, rows: Tensor, lam: Tensor) -> Tensor:
    """x / sqrt(C(lambda)) in the eigenbasis, with these rows in C, and no entry larger than 1 / sqrt(1 - beta)."""
    x, seen = state.turn(x), state.turn(rows)
    C = conditioned(lam, state.average("F").add(seen[:, None] * seen[None]))
    return x / (torch.maximum(C, (1.0 - BETA) * x.square()).sqrt() + EPS)


def soap(state: Matrix, rows: Tensor, lam: Tensor, memory: Memory = BETA) -> Tensor:
    d = torch.einsum("i,imn->mn", lam, rows)
    m = state.average("m").add(d, beta_of(memory, state, d))
    v = state.average("v").add(state.turn(d).square())
    return state.back(state.turn(m) / (v.sqrt() + EPS))


def whiten_then_average(state: Matrix, rows: Tensor, lam: Tensor) -> Tensor:
    d = torch.einsum("i,imn->mn", lam, rows)
    return state.average("m").add(state.back(whiten(state, d, rows, lam)))


def momentums_preference(state: Matrix, rows: Tensor, lam: Tensor, memory: Memory = BETA) -> Tensor:
    """The momentum over the root of the curvature at the preference that the momentum stands for."""
    d = torch.einsum("i,imn->mn", lam, rows)
    beta = beta_of(memory, state, d)
    mean = state.average("lambda").add(lam, beta)
    return state.back(whiten(state, state.average("m").add(d, beta), rows, mean))


def momentum_per_objective(state: Matrix, rows: Tensor, lam: Tensor) -> Tensor:
    """Today's weights on a momentum of each objective."""
    m = torch.einsum("i,imn->mn", lam, state.average("m").add(rows))
    return state.back(whiten(state, m, rows, lam))


def averages_of_both(state: Matrix, rows: Tensor, lam: Tensor) -> Tensor:
    """The average of the weights on a momentum of each objective: noise of the one does not meet noise of the other."""
    mean = state.average("lambda").add(lam)
    m = torch.einsum("i,imn->mn", mean, state.average("m").add(rows))
    return state.back(whiten(state, m, rows, mean))


def shampoo(state: Matrix, rows: Tensor, lam: Tensor) -> Tensor:
    """L(lambda)^-1/4 D R(lambda)^-1/4, as long as the whitened direction, then averaged."""
    d = torch.einsum("i,imn->mn", lam, rows)
    whitened = whiten(state, d, rows, lam)
    if state.param.ndim == 1:
        step = whitened
    else:
        left = state.average("LL").add(torch.einsum("imn,jkn->ijmk", rows, rows))
        right = state.average("RR").add(torch.einsum("imn,jmk->ijnk", rows, rows))
        step = fourth_root(conditioned(lam, left)) @ d @ fourth_root(conditioned(lam, right))
        step = step * (whitened.norm() / step.norm().clamp_min(1e-30))
    return state.average("m").add(step)


def fourth_root(A: Tensor) -> Tensor:
    """A^-1/4 of a matrix without negative eigenvalues."""
    values, Q = torch.linalg.eigh((A + A.T) / 2.0)
    return (Q * values.clamp_min(1e-6 * values[-1].clamp_min(1e-30)).pow(-0.25)) @ Q.T


Form = Callable[[Matrix, Tensor, Tensor], Tensor]
FORMS: dict[str, Form] = {
    "SOAP: m / sqrt(v)": soap,
    "SOAP, momentum 0.9": partial(soap, memory=0.9),
    "SOAP, adaptive momentum": partial(soap, memory="adaptive"),
    "average of d / sqrt(C(lambda))": whiten_then_average,
    "MSOAP: m / sqrt(C(mean lambda))": momentums_preference,
    "MSOAP, momentum 0.9": partial(momentums_preference, memory=0.9),
    "MSOAP, adaptive momentum": partial(momentums_preference, memory="adaptive"),
    "sum lambda m_i / sqrt(C(lambda))": momentum_per_objective,
    "both of the average of lambda": averages_of_both,
    "Shampoo of lambda": shampoo,
}


class Stepper:
    """Takes the optimizer's place in a run of the lab."""

    def __init__(self, params: Iterable[Tensor], solver: Any, form: Form, lr: float) -> None:
        self.states = [Matrix(param) for param in params]
        self.param_groups: list[dict[str, Any]] = [{"params": [state.param for state in self.states], "lr": lr}]
        self.solver, self.form = solver, form
        self.weights: Tensor | None = None
        self.rows: list[Tensor] = []

    def zero_grad(self) -> None:
        self.rows = []

    def backward(self, losses: list[Tensor]) -> None:
        params = [state.param for state in self.states]
        found = []
        for loss in losses:
            gradients = torch.autograd.grad(loss, params, retain_graph=True, materialize_grads=True)
            found.append([g.view(s.shape) for g, s in zip(gradients, self.states, strict=True)])
        self.rows = [torch.stack(rows) for rows in zip(*found, strict=True)]
        flat = torch.cat([rows.flatten(1) for rows in self.rows], 1)
        self.weights = self.solver.solve(torch.stack([loss.detach() for loss in losses]), flat @ flat.T)

    @torch.no_grad()
    def step(self) -> None:
        lam = self.weights
        assert lam is not None
        for state, rows in zip(self.states, self.rows, strict=True):
            first = state.steps == 0 and state.param.ndim > 1  # its basis is not there yet
            if not first:
                update = self.form(state, rows, lam)
                state.param.sub_(update.view_as(state.param), alpha=self.param_groups[0]["lr"])
            state.follow(torch.einsum("i,imn->mn", lam, rows))


def train(cell: str, form: Form, lr: float, seed: int, epochs: int | None) -> tuple[float, float, float, float]:
    """Validation metric with its sign such that less is better, test metric, training loss at the end, seconds."""
    name, solver = cell.rsplit(":", 1)
    config = configure(name, solver=solver, optimizer="adam", seed=seed, lr=lr, epochs=epochs)
    benchmark, profile = problem_of(config)
    data = benchmark.load(data_root(None), profile, seed)
    run = Training(config, benchmark, profile, data, torch.device("cpu"))
    run.optimizer = Stepper(run.model.parameters(), run.build_solver(), form, lr)
    start = time.process_time()
    while not run.ended:
        run.advance()
    seconds = time.process_time() - start
    metric = benchmark.primary
    if run.best is None or run.best["metrics"] is None:
        return float("inf"), float("nan"), float("inf"), seconds
    validation = run.best["validation"][metric.name] * (-1 if metric.higher_is_better else 1)
    return validation, run.best["metrics"][metric.name], sum(run.epochs[-1]["train_losses"]), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="+", help="benchmark:solver")
    parser.add_argument("--forms", nargs="*", default=[*FORMS], choices=[*FORMS])
    parser.add_argument("--rates", nargs="*", type=float, default=[3e-3, 1e-2])
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for cell in given.cells:
        print(f"{cell}, rates {given.rates}", flush=True)
        for label in given.forms:
            runs = {lr: [train(cell, FORMS[label], lr, s, given.epochs) for s in given.seeds] for lr in given.rates}
            lr = min(runs, key=lambda rate: fmean(run[0] for run in runs[rate]))
            each = " ".join(f"{run[1]:.4g}" for run in runs[lr])
            mean, loss, seconds = (fmean(run[k] for run in runs[lr]) for k in (1, 2, 3))
            print(f"  {label:34s} {mean:.4g} at {lr:.0e}   {each}   loss {loss:.2e}   {seconds:3.0f} s", flush=True)


if __name__ == "__main__":
    main()
