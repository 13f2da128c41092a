"""check_solver finds a broken promise of each kind, and names it."""

import pytest
import torch

from madamoo.solvers import LS, Solver
from madamoo.testing import CLAIMS, check_solver, hostile_steps, ordinary_steps


class Sound(Solver):
    """Softmax of a moving average of |g|, with some noise: state, statistics, Gram matrix and generator, all right."""

    family = "gradient"
    needs_gram = True
    row_statistics = ("max_abs",)
    per_objective = ("level",)

    def __init__(self, beta=0.5, seed=0):
        super().__init__()
        self.beta = beta
        self.seed_generator(seed)

    def setup(self, n_objectives):
        self.register_buffer("level", torch.zeros(n_objectives, dtype=torch.float64))

    def weights(self, losses, gram=None, preference=None, *, max_abs=None):
        norms = self.require(gram).diagonal().to(self.level).sqrt() + max_abs.to(self.level)
        self.level = torch.lerp(norms, self.level, self.beta)
        return torch.softmax((1 + self.noise(len(losses))) * self.level.log1p(), 0).to(losses)

    def noise(self, count):
        return 0.1 * torch.rand(count, generator=self.generator, dtype=torch.float64)


def test_a_sound_solver_passes():
    check_solver(Sound, claims=["simplex", "loss_scale", "local"])
    check_solver(lambda: Sound(beta=0.9, seed=3), claims=("simplex",))


class WrongFamily(Sound):
    family = "gradients"


class UnregisteredBuffer(Sound):
    per_objective = ("level", "other")


class WrongSize(Sound):
    def setup(self, n_objectives):
        super().setup(2 * n_objectives)


class NoKeyword(Sound):
    def weights(self, losses, gram=None, preference=None):
        return super().weights(losses, gram)


class Single(Sound):
    def weights(self, losses, gram=None, preference=None, *, max_abs=None):
        return super().weights(losses, gram, max_abs=max_abs).float()


class Attached(Sound):
    def _checked(self, weights, count):
        return weights.requires_grad_()


class GlobalDraws(Sound):
    def noise(self, count):
        return 0.1 * torch.rand(count, dtype=torch.float64)


class DrawsInConstructor(Sound):
    def __init__(self):
        super().__init__(seed=int(torch.initial_seed()))


class OverwritesGram(Sound):
    def weights(self, losses, gram=None, preference=None, *, max_abs=None):
        result = super().weights(losses, gram, max_abs=max_abs)
        gram.mul_(2.0)
        return result


class KeepsLosses(Sound):
    per_objective = ("level", "seen")

    def setup(self, n_objectives):
        super().setup(n_objectives)
        self.register_buffer("seen", torch.zeros(n_objectives, dtype=torch.float64))

    def weights(self, losses, gram=None, preference=None, *, max_abs=None):
        self.seen = losses
        return super().weights(losses, gram, max_abs=max_abs)


class AnyNumber(Sound):
    def ensure(self, count):
        if self.n_objectives != count:
            self.setup(count)
            self.n_objectives = count


class ReadsLosses(Sound):
    def weights(self, losses, gram=None, preference=None, *, max_abs=None):
        return super().weights(losses, gram, max_abs=max_abs) * losses / losses.sum()


class NoGramIsFine(Sound):
    def require(self, gram):
        return torch.eye(2, dtype=torch.float64) if gram is None else super().require(gram)


class NotStatic(LS):
    def weights(self, losses, gram=None, preference=None):
        self.ensure(len(losses))
        self.coefficients = 0.9 * self.coefficients
        return self.coefficients.to(losses)


class StaleMask(LS):
    per_coordinate = True

    def masks(self, rows, keys):
        return rows.abs_().sum(0)


class RefusesPartOfTheBatch(Sound):
    def weights(self, losses, gram=None, preference=None, *, max_abs=None):
        if len(losses) == 3 and len(gram) == 3 and self.level.shape == (3,) and self.told:
            raise RuntimeError("all four, please")
        self.told = len(losses) == 4
        return super().weights(losses, gram, max_abs=max_abs)

    told = False


class StateOutsideBuffers(Sound):
    steps = 0

    def weights(self, losses, gram=None, preference=None, *, max_abs=None):
        self.steps += 1
        return super().weights(losses, gram, max_abs=max_abs) / self.steps


class UnsavedGenerator(Sound):
    def get_extra_state(self):
        return {**super().get_extra_state(), "generator": None}


class SharedCopy(Sound):
    def __deepcopy__(self, memo):
        return self


class SaysStateless(Sound):
    has_state = False


class Overflows(Sound):
    def weights(self, losses, gram=None, preference=None, *, max_abs=None):
        super().weights(losses, gram, max_abs=max_abs)
        return (1 / gram.diagonal().sqrt()).to(losses)


class Raises(Sound):
    def weights(self, losses, gram=None, preference=None, *, max_abs=None):
        torch.linalg.cholesky(self.require(gram))
        return super().weights(losses, gram, max_abs=max_abs)


class OpaqueOptions(Sound):
    def options(self):
        return {"beta": torch.tensor(0.5)}


class OtherOptions(Sound):
    def options(self):
        return {"gamma": 0.5}


BROKEN = {
    WrongFamily: "family is one of",
    UnregisteredBuffer: "setup registers the buffers that per_objective names",
    WrongSize: "every dimension of a buffer in per_objective is the number of objectives",
    NoKeyword: "weights takes losses, gram, preference, max_abs",
    OpaqueOptions: "options\\(\\) holds plain Python values",
    OtherOptions: "options\\(\\) rebuild the solver",
    Single: "in the dtype of the losses",
    Attached: "detached",
    GlobalDraws: "random draws come from self.generator",
    DrawsInConstructor: "the same weights, bit for bit",
    OverwritesGram: "stay as they are",
    KeepsLosses: "keeps no view of its inputs",
    AnyNumber: "another number of objectives than before is refused",
    ReadsLosses: "declared by uses_losses",
    NoGramIsFine: "refuses a call without the Gram matrix",
    NotStatic: "static means that the weights never change",
    StaleMask: "masks has the shape of the rows",
    RefusesPartOfTheBatch: "a batch may lack objectives; RuntimeError: all four, please",
    StateOutsideBuffers: "a state dict restores the solver",
    UnsavedGenerator: "a state dict restores the solver",
    SharedCopy: "a deep copy shares nothing",
    SaysStateless: "a solver without has_state leaves nothing behind",
    Overflows: "weights are finite for every finite input; for . objectives, .* gradient.* zero",
    Raises: "weights are finite for every finite input, also for . with all gradients zero",
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda b: b.__name__)
def test_a_broken_promise_is_named(broken):
    with pytest.raises(AssertionError, match=BROKEN[broken]) as error:
        check_solver(broken)
    assert str(error.value).startswith(f"{broken.__name__}: ")


class Moves(Sound):
    """Changes the state of a missing objective behind the base class's back."""

    def solve(self, losses, gram=None, preference=None, present=None, statistics=None):
        result = super().solve(losses, gram, preference, present, statistics)
        self.level = self.level + 1.0
        return result


class SmallWeight(Sound):
    def solve(self, losses, gram=None, preference=None, present=None, statistics=None):
        return super().solve(losses, gram, preference, present, statistics) + 1e-3


@pytest.mark.parametrize(
    "broken, message", [(Moves, "the state of a missing objective rests"), (SmallWeight, "missing objective is 0")]
)
def test_missing_objectives(broken, message):
    with pytest.raises(AssertionError, match=message):
        check_solver(broken)


class Falling(Solver):
    """Keeps none of the claims: weights by position, by size of loss and of gradient, and by the number present."""

    uses_losses = True
    needs_gram = True

    def weights(self, losses, gram=None, preference=None):
        size = (self.require(gram).diagonal() + losses).clamp(1e-3, 1e3)
        return (size + torch.arange(len(losses)) + len(losses) * (self.n_objectives or 0)).to(losses) / 100


@pytest.mark.parametrize("claim", CLAIMS)
def test_every_claim_can_fail(claim):
    class ByPresence(Falling):
        def solve(self, losses, gram=None, preference=None, present=None, statistics=None):
            factor = 1.0 if present is None else 2.0
            return factor * super().solve(losses, gram, preference, present, statistics)

    check_solver(ByPresence)
    with pytest.raises(AssertionError, match=rf"\({claim}\)"):
        check_solver(ByPresence, claims=[claim])


def test_what_is_no_solver_and_no_claim_is_refused():
    with pytest.raises(TypeError, match="make must build a Solver"):
        check_solver(dict)
    with pytest.raises(ValueError, match=r"claims must be among simplex, .*, got 'fast'"):
        check_solver(LS, claims=["fast"])


def test_the_global_generator_is_left_alone():
    before = torch.random.get_rng_state()
    check_solver(Sound)
    assert torch.equal(before, torch.random.get_rng_state())


def test_steps():
    for count in (1, 2, 7):
        for step in [*ordinary_steps(count), *(step for _, step in hostile_steps(count))]:
            tensors = [step.losses, step.gram, step.preference, *step.statistics.values()]
            assert all(tensor.isfinite().all() and tensor.dtype == torch.float64 for tensor in tensors)
            assert step.losses.shape == step.preference.shape == (count,) and step.gram.shape == (count, count)
            assert torch.linalg.eigvalsh(step.gram).min() >= -1e-5 * step.gram.abs().max()
            assert step.statistics["block_norms"].shape == (count, 2)
    a, b = ordinary_steps(3, 2)
    assert not torch.equal(a.losses, b.losses)
    part = a.select([2, 0])
    assert part.gram[0, 1] == a.gram[2, 0] and part.losses.tolist() == [a.losses[2], a.losses[0]]
    norms = a.statistics["block_norms"].square().sum(1)
    torch.testing.assert_close(norms, a.gram.diagonal())
