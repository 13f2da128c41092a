"""Which derivatives there are, and the rules by which they pass through products and functions.

A derivative is the sorted tuple of the coordinates by which it is taken: ``()`` is the value, ``(0, 1)`` is u_xy. The
Laplacian over some coordinates is one more: ``Laplacian((0, 1))`` stands for u_xx + u_yy and is carried as a single
quantity, which takes one channel instead of one per coordinate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache
from itertools import combinations


class Laplacian(tuple[int, ...]):
    """The sum of the second derivatives by each of these coordinates."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Laplacian) and tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(("laplacian", tuple(self)))


Index = tuple[int, ...]
"""A sorted tuple of coordinates, or a :class:`Laplacian`."""


def order(index: Index) -> int:
    return 2 if isinstance(index, Laplacian) else len(index)


def closure(indices: Iterable[Index]) -> tuple[Index, ...]:
    """All derivatives that these are made of, themselves included, those of low order first."""
    found: set[Index] = {()}
    for index in indices:
        found.add(index)
        if isinstance(index, Laplacian):
            found.update((i,) for i in index)
        else:
            found.update(part for size in range(len(index)) for part in combinations(index, size))
    return tuple(sorted(found, key=lambda index: (order(index), isinstance(index, Laplacian), tuple(index))))


@cache
def leibniz(index: Index) -> tuple[tuple[int, Index, Index], ...]:
    """The terms of a product's derivative: (ab)_xx = a b_xx + 2 a_x b_x + a_xx b, as (count, of a, of b)."""
    if isinstance(index, Laplacian):
        return (1, (), index), (1, index, ()), *((2, (i,), (i,)) for i in index)
    terms: Counter[tuple[Index, Index]] = Counter()
    places = range(len(index))
    for size in range(len(index) + 1):
        for chosen in combinations(places, size):
            rest = tuple(index[k] for k in places if k not in chosen)
            terms[tuple(index[k] for k in chosen), rest] += 1
    return tuple((count, *pair) for pair, count in terms.items())


@cache
def faa_di_bruno(index: Index) -> tuple[tuple[int, tuple[tuple[int, tuple[Index, ...]], ...]], ...]:
    """The terms of f(z)'s derivative: for each derivative of f, the products of derivatives of z and their counts.

    f(z)_xx = f' z_xx + f'' z_x z_x is ``((1, ((1, ((0, 0),)),)), (2, ((1, ((0,), (0,))),)))``.
    """
    if isinstance(index, Laplacian):
        return (1, ((1, (index,)),)), (2, tuple((1, ((i,), (i,))) for i in index))
    terms: dict[int, Counter[tuple[Index, ...]]] = {}
    for blocks in _partitions(list(range(len(index)))):
        product = tuple(sorted(tuple(index[k] for k in block) for block in blocks))
        terms.setdefault(len(product), Counter())[product] += 1
    return tuple((m, tuple((count, p) for p, count in terms[m].items())) for m in sorted(terms))


def _partitions(items: list[int]) -> list[list[list[int]]]:
    if not items:
        return [[]]
    first, rest = items[0], items[1:]
    found = []
    for blocks in _partitions(rest):
        found.append([[first], *blocks])
        found += [[*blocks[:k], [first, *blocks[k]], *blocks[k + 1 :]] for k in range(len(blocks))]
    return found
