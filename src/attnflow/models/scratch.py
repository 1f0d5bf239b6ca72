"""Memory to compute block after block in."""

from math import prod

from torch import Tensor


class Scratch:
    """Memory that is used again and again: fresh memory costs more than the arithmetic in it."""

    def __init__(self) -> None:
        self.held: dict[int, Tensor] = {}

    def take(self, place: int, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """A tensor of this shape, of the type and on the device of `like`; its values are random.

        There is one for each place at a time.
        """
        size = prod(shape)
        if place not in self.held or self.held[place].numel() < size:
            self.held[place] = like.new_empty(size)
        return self.held[place][:size].view(shape)
