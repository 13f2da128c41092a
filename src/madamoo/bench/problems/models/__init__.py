"""Networks with one shared trunk and one head per objective. One file each, with a function ``build``.

``build(inputs, outputs, **options)`` takes the shape of one input and the size of each objective's output, and returns
a module that maps a batch to the list of the outputs.
"""

from torch import Tensor, nn


class Listed(nn.Module):
    """A network whose single output becomes a list of one, as every model here gives a list."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> list[Tensor]:
        out = self.network(x)
        return out if isinstance(out, list) else [out]


def check_image(name: str, inputs: tuple[int, ...], smallest: int) -> None:
    """Raise ValueError unless the inputs are images [channels, height, width] of at least so many pixels a side."""
    if len(inputs) != 3:
        raise ValueError(f"{name} takes images [channels, height, width]; these inputs are {list(inputs)}: try mlp")
    if min(inputs[1:]) < smallest:
        raise ValueError(f"{name} takes images of {smallest}x{smallest} or more; these are {inputs[1]}x{inputs[2]}")
