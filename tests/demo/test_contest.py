import math

import pytest
import torch

from madamoo.demo.contest import BUILD, Contest, Run, best_rates, chosen
from madamoo.solvers import LS


def test_the_first_seed_chooses_the_rate_by_its_score_and_a_diverged_run_never_wins() -> None:
    runs = [Run("a", 0.1, 0, 1.0, 0.0), Run("a", 0.3, 0, 2.0, 0.0), Run("a", 0.1, 1, 9.0, 0.0)]
    runs += [Run("b", 0.1, 0, -5.0, 0.0), Run("b", 0.3, 0, math.nan, 0.0), Run("c", 0.3, 0, math.nan, 0.0)]
    assert best_rates(runs) == {"a": 0.3, "b": 0.1, "c": 0.3}
    assert [(run.contender, run.lr) for run in chosen(runs)] == [("a", 0.3), ("b", 0.1), ("c", 0.3)]


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_contest_runs_both_rates_once_and_the_chosen_one_for_every_other_seed(seeds: int) -> None:
    def train(contender: str, lr: float, seed: int) -> Run:
        return Run(contender, lr, seed, -lr if contender == "slow" else lr, 0.0)

    contest = Contest(train, ("slow", "fast"), (1e-2, 3e-2), seeds)
    first = [call() for call in contest.first()]
    rest = [call() for call in contest.rest(first)]
    assert [(run.contender, run.lr) for run in first] == [(c, lr) for c in ("slow", "fast") for lr in (1e-2, 3e-2)]
    assert [(run.contender, run.lr, run.seed) for run in rest] == [
        (c, lr, seed) for c, lr in (("slow", 1e-2), ("fast", 3e-2)) for seed in range(1, seeds)
    ]


def test_contenders_differ_from_adam_and_adam_is_torchs() -> None:
    def walk(build) -> torch.Tensor:
        x = torch.nn.Parameter(torch.tensor([[1.0, 2.0], [3.0, -1.0]]))
        opt = build([x])
        for _ in range(5):
            opt.zero_grad()
            losses = [x.square().sum(), (x[0] - 3).square().sum()]
            opt.backward(losses) if hasattr(opt, "backward") else (sum(losses) / 2).backward()
            opt.step()
        return x.detach()

    plain = walk(lambda p: torch.optim.Adam(p, lr=0.1))
    found = {name: walk(lambda p, b=build: b(p, 0.1, LS())) for name, build in BUILD.items()}
    torch.testing.assert_close(found.pop("Adam"), plain)
    assert all(not torch.allclose(x, plain, atol=1e-3) for x in found.values())
