"""The problems of PINNacle and their corrected variants, as ``pinn/burgers1d``; see :mod:`madamoo.pinn.cases`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from madamoo import MultiObjective
from madamoo.pinn import RAR, Problem, RARPinnacle, Reference, cases, observe_kernel, polish

from .. import Batches, Benchmark, DataSource, Evaluation, Metric, Profile, cache_root, find

CPU_STEPS, PAPER_STEPS = 100, 1000  # per epoch
HEAVY = ("heat5d", "ns2d-long", "ns2d-long-free")  # several times the work of the others at each point
VALIDATION = 5  # one in so many points of the reference is for validation, the others are for the test
CPU_RESAMPLE = 10  # steps: a few hundred points that stay are learned by heart, long before the equation holds
RECIPES: dict[str, dict[str, Any]] = {
    "": {},
    "-rar": {"rar": "rar"},
    "-rar-pinnacle": {"rar": "rar-pinnacle"},
    "-fixed": {"resample": None},
    "-resampled": {"resample": 100},
    "-polished": {"polish": 500},
}
"""What a profile adds to its size: points of large residual, how often points are drawn, L-BFGS after the last step."""

SOURCE = DataSource(
    "PINNacle: A Comprehensive Benchmark of Physics-Informed Neural Networks for Solving PDEs (NeurIPS 2024)",
    "Z. Hao, J. Yao, C. Su, H. Su, Z. Wang, F. Lu, Z. Xia, Y. Zhang, S. Liu, L. Lu, J. Zhu",
    "https://github.com/i207M/PINNacle",
    "MIT",
)


@dataclass
class Loaded:
    """A case with its solution in two parts; problems are made when the number of points is known."""

    case: cases.Case
    files: cases.Data
    reference: Reference
    validation: Reference
    test: Reference
    profile: Profile
    device: torch.device | str = "cpu"
    held: dict[int, Problem] = field(default_factory=dict)  # points that are not trained on, by their number

    def to(self, device: torch.device) -> Loaded:
        return replace(self, device=device)

    def problem(self, size: int, generator: torch.Generator | None = None) -> Problem:
        """``size`` points in the domain, a quarter of that on the boundary and at the start."""
        return self.case.problem(
            self.files,
            reference=False,
            num_domain=size,
            num_boundary=max(1, size // 4),
            num_initial=max(1, size // 4),
            generator=generator,
            device=self.device,
        )

    def held_out(self, size: int) -> Problem:
        if size not in self.held:
            self.held[size] = self.problem(size, torch.Generator().manual_seed(0))
        return self.held[size]


class Points(Batches):
    """All points in every step, drawn again or refined from time to time. The batch is this object itself."""

    def __init__(self, data: Loaded, size: int) -> None:
        options = data.profile.options
        self.steps = int(options["steps"])
        self.problem = data.problem(size)
        self.resample, self.polish = options.get("resample"), options.get("polish")
        # every 1,000 of 20,000 steps in the paper's profile, as often in a shorter one
        every = max(1, self.steps * data.profile.epochs // 20)
        kinds = {"rar": RAR, "rar-pinnacle": RARPinnacle, None: None}
        kind = kinds[options.get("rar")]
        count = 1 if kind is RARPinnacle else max(1, size // 100)
        self.rar = None if kind is None else kind(every, count=count, candidates=size)
        self.taken = 0
        self.drawn: Tensor | None = None  # the generator's state before the points were drawn last

    def draw(self, position: int, generator: torch.Generator) -> Points:
        if self.resample and self.taken and self.taken % self.resample == 0:
            self.drawn = generator.get_state()
            self.problem.sample(generator)
        self.taken += 1
        return self

    def refine(self, model: nn.Module) -> None:
        before = self.taken - 1
        if self.rar is not None and before and before % self.rar.every == 0:
            self.rar.refine(self.problem, model)

    def state_dict(self) -> dict[str, Any]:
        return {
            "taken": self.taken,
            "drawn": self.drawn,
            "anchors": self.problem.anchors,
            "rar": None if self.rar is None else self.rar.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.taken, self.drawn = state["taken"], state["drawn"]
        if self.drawn is not None:
            self.problem.sample(_generator(self.drawn))
        if len(state["anchors"]):
            self.problem.add_anchors(state["anchors"])
        if self.rar is not None:
            self.rar.generator.set_state(state["rar"])


class Pinnacle(Benchmark):
    """One case. The metric is the relative L2 error against the reference; ``batch`` counts points in the domain.

    A fifth of the reference's points chooses learning rates, the others are the test. The losses that are reported are
    those at points that are not trained on.
    """

    metrics = (Metric("error", higher_is_better=False, digits=5, unsolved=0.9),)  # zero everywhere has the error 1
    source = SOURCE

    def __init__(self, name: str) -> None:
        self.case = cases.get(name)
        self.name = f"pinn/{name}"
        self.objectives = self.case.objectives
        self.residuals = tuple(range(len(self.case.equation_names)))
        self.kinds = ("regression",) * len(self.objectives)
        self.files = (tuple(f"pinnacle/{file}" for file in self.case.files),) if self.case.files else ()
        self.layout = cases.LAYOUT if self.case.files else ""
        self.profiles = {
            f"{size}{recipe}": replace(profile, options={**profile.options, **options})
            for size, profile in (("cpu", self._cpu()), ("paper", self._paper()))
            for recipe, options in RECIPES.items()
        }

    def _paper(self) -> Profile:
        size = 8192 * self.case.multiplier
        return Profile(epochs=20, batch=size, lr=1e-3, model="fnn", options={"steps": PAPER_STEPS})

    def _cpu(self) -> Profile:
        size = 256 if self.case.name in HEAVY else 512
        return Profile(
            epochs=15,
            batch=size,
            lr=3e-3,
            model="fnn:depth=4:width=50",
            schedule="cosine",
            threads=1,
            reductions=(
                "4 hidden layers of 50, not 5 of 100",
                f"{size} points in the domain, not {8192 * self.case.multiplier}; as many fewer on the boundary and at "
                "the start",
                f"points are drawn again every {CPU_RESAMPLE} steps, not once",
                "1,500 steps, not 20,000",
                "the learning rate falls to zero along a cosine",
            ),
            options={"steps": CPU_STEPS, "resample": CPU_RESAMPLE},
        )

    def state(self, root: Path | None) -> str:
        found = super().state(root)
        if found == "missing":
            return found
        if self.case.kind == "computed":
            kept = self.case.kept(cases.Data(root, cache_root()))
            return f"here: {kept}" if kept else f"computed at the first run, or by madamoo data --prepare {self.name}"
        return {"exact": "exact solution", "file": "here"}[self.case.kind]

    def load(self, root: Path | None, profile: Profile, seed: int) -> Loaded:
        if self.files:
            find(root, self.name, self.layout, *self.files)
        files = cases.Data(root, cache_root())
        reference = self.case.reference(files)
        order = torch.randperm(len(reference.points), generator=torch.Generator().manual_seed(0))
        count = max(1, len(order) // VALIDATION)
        parts = (order[:count], order[count:])
        validation, test = (Reference(reference.points[part], reference.values[part]) for part in parts)
        return Loaded(self.case, files, reference, validation, test, profile)

    def row_of_paper(self, solver: str, setting: Mapping[str, Any]) -> str:
        """Plain runs by their solver; those of another recipe or activation by that, and never with a solver too."""
        recipe = str(setting.get("profile")).partition("-")[2]
        activation = re.search(r"activation=(\w+)", str(setting.get("model")))
        recipe = "" if recipe == "fixed" else recipe.removesuffix("-pinnacle")  # the paper's points stay
        other = [part for part in (recipe, activation and activation[1]) if part]
        if not other:
            return solver
        return str(other[0]) if len(other) == 1 and solver == "ls" else ""

    def shape(self, data: Loaded) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return (self.case.domain.dim,), (len(self.case.outputs),)

    def batches(self, data: Loaded, size: int) -> Points:
        return Points(data, size)

    def before_step(self, model: nn.Module, batch: Points, optimizer: Any) -> None:
        batch.refine(model)
        if isinstance(optimizer, MultiObjective):
            observe_kernel(batch.problem, model, optimizer, named=False)

    def losses(self, model: nn.Module, batch: Points) -> list[Tensor]:
        return list(batch.problem.losses(model).values())

    def finish(self, model: nn.Module, batch: Points) -> None:
        if batch.polish:
            polish(batch.problem, model, batch.polish)

    def maps(self, model: nn.Module, data: Loaded, size: int) -> list[dict[str, Any]]:
        found = cases.maps(self.case, model, data.held_out(size), data.reference)
        return [{**vars(one), "axes": list(one.axes)} for one in found]

    def evaluate(self, model: nn.Module, data: Loaded, split: str, size: int) -> Evaluation:
        reference = data.validation if split == "validation" else data.test
        losses = data.held_out(size).losses(model)
        return Evaluation({"error": reference.error(model)}, [float(loss.detach()) for loss in losses.values()])


def _generator(state: Tensor) -> torch.Generator:
    generator = torch.Generator()
    generator.set_state(state)
    return generator


BENCHMARKS = {f"pinn/{name}": partial(Pinnacle, name) for name in cases.available()}
