"""What PaMaL and PaLoRA share: networks some of whose tensors are functions of the preference."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import groupby
from typing import Any, cast

import torch
from torch import nn
from torch.nn.utils import parametrize

from ._conditioned import Active, Conditioned, Slot, open_slots, owners

EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)


class Mixture(nn.Module):
    """A parametrization: a tensor of a layer as a function of the preference."""

    def __init__(self, active: Active) -> None:
        super().__init__()
        self.active = active


class Parametrized(Conditioned):
    """A network with parametrizations: some of its tensors are mixtures over the objectives."""

    def takes(self, slot: Slot) -> bool:
        """Whether the parameter there is to become a mixture, or an error that says why it cannot."""
        raise NotImplementedError

    def choose(self, shared: str | Sequence[str]) -> list[Slot]:
        """The places that :meth:`takes` wants, of those that hold a trainable parameter and are not shared."""
        chosen = []
        for slot in open_slots(self.module, shared):
            before, found, _ = f".{slot.path}.".rpartition(".parametrizations.")
            if found or parametrize.is_parametrized(slot.layer):
                layer = before.strip(".") if found else slot.path
                raise self.refusal(f"{layer or 'the model'} is parametrized already", layer or slot.name)
            if self.takes(slot):
                chosen.append(slot)
        places = owners(self.module)
        for slot in chosen:
            if len(places[slot.parameter]) > 1:
                names = places[slot.parameter]
                raise self.refusal(f"{' and '.join(names)} are one parameter, tied", *names)
        if not chosen:
            raise ValueError(
                f"{type(self).__name__} finds no layer that it could make depend on the preference: those it knows are "
                "frozen, shared, or not there"
            )
        return chosen

    def insert(self, slot: Slot, mixture: Mixture) -> nn.Module:
        """Make the parameter there a mixture; the result holds the original ones."""
        with self.at([1 / self.n_objectives] * self.n_objectives):  # torch looks at the result
            parametrize.register_parametrization(slot.layer, slot.name, mixture)
        return _parametrizations(slot.layer)[slot.name]

    def mixtures(self) -> dict[tuple[str, str], nn.Module]:
        """The parametrizations, by the path of the layer and the name of the tensor."""
        return {
            (path, name): entry
            for path, layer in self.module.named_modules()
            if parametrize.is_parametrized(layer)
            for name, entry in _parametrizations(layer).items()
            if isinstance(next(entry.children()), Mixture)
        }

    def settle(self) -> None:
        values = {(path, name): getattr(self.module.get_submodule(path), name) for path, name in self.mixtures()}
        _strip(self.module, {place: nn.Parameter(x.detach(), x.requires_grad) for place, x in values.items()})

    def refusal(self, reason: str, *names: str) -> ValueError:
        advice = ", ".join(map(repr, names))
        return ValueError(f"{type(self).__name__} cannot handle this: {reason}; leave it as it is, shared=[{advice}]")

    def __repr__(self) -> str:
        with self.at([1 / self.n_objectives] * self.n_objectives):  # layers look whether they have a bias
            return super().__repr__()

    # torch does not pickle parametrized modules. So the state is the bare network, and the parametrizations apart.
    def __getstate__(self) -> dict[str, Any]:
        mixtures = self.mixtures()
        kept = [*self.parameters(), *self.buffers(), *mixtures.values()]
        bare = copy.deepcopy(self.module, {id(x): x for x in kept})
        _strip(bare, {place: nn.Parameter(torch.empty(0)) for place in mixtures})
        return {**self.__dict__, "_modules": {"module": bare}, "mixtures": mixtures}

    def __setstate__(self, state: dict[str, Any]) -> None:
        mixtures = state.pop("mixtures")
        super().__setstate__(state)
        for (path, name), entry in mixtures.items():
            layer = self.module.get_submodule(path)
            parametrize.register_parametrization(layer, name, next(entry.children()), unsafe=True)
            _parametrizations(layer)[name] = entry


def _parametrizations(layer: nn.Module) -> nn.ModuleDict:
    return cast(nn.ModuleDict, layer.parametrizations)


def _strip(model: nn.Module, parameters: dict[tuple[str, str], nn.Parameter]) -> None:
    """Put plain parameters in the place of the mixtures, and the layers' own classes in the place of torch's."""
    for path, entries in groupby(parameters.items(), key=lambda item: item[0][0]):
        layer = model.get_submodule(path)
        layer.__class__ = parametrize.type_before_parametrizations(layer)
        del layer.parametrizations
        everything = {**layer._parameters, **{name: parameter for (_, name), parameter in entries}}
        layer._parameters.clear()
        for name in sorted(everything, key=lambda name: name != "weight"):  # as layers have it: the weight comes first
            layer.register_parameter(name, everything[name])
