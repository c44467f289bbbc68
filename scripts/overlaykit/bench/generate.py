"""Random knapsack instances: by seed, the same in every process and on every machine."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import NamedTuple


QUANTA = 10_000  # per unit of memory, in the solvers that use a table


class Knapsack(NamedTuple):
    memory: list[float]
    runtime: list[float]
    budget: float


def uniform(n: int, seed: int) -> Knapsack:
    """As the partitioner poses it: sizes are fractions of their total; budget 0.5."""
    rng = random.Random(f"uniform {n} {seed}")
    sizes = [1 - rng.random() for _ in range(n)]
    total = sum(sizes)
    return Knapsack(
        [size / total for size in sizes], [1 - rng.random() for _ in sizes], 0.5
    )


def integers(n: int, seed: int, largest: int) -> Knapsack:
    """Whole sizes from 1 to `largest`, whole runtimes to 1e9; budget: half the sizes."""
    rng = random.Random(f"integers {n} {seed} {largest}")
    sizes: list[float] = [rng.randint(1, largest) for _ in range(n)]
    runtime: list[float] = [rng.randint(1, 10**9) for _ in range(n)]
    return Knapsack(sizes, runtime, int(sum(sizes)) // 2)


def quanta(n: int, seed: int, capacity: int) -> Knapsack:
    """Sizes in whole quanta without a common divisor, about twice `capacity` in all."""
    rng = random.Random(f"quanta {n} {seed} {capacity}")
    sizes = [rng.randint(1, 4 * capacity // n) for _ in range(n - 1)]
    sizes.append(sizes[0] + 1)  # neighbours share no divisor
    return Knapsack(
        [size / QUANTA for size in sizes],
        [rng.randint(1, 10**9) for _ in sizes],
        capacity / QUANTA,
    )


KINDS: dict[str, Callable[..., Knapsack]] = {
    "uniform": uniform,
    "integers": integers,
    "quanta": quanta,
}


# Pisinger, "Where are the hard knapsack problems?" (2005): weight and profit of an item,
# drawn with coefficients up to R.
_Pair = tuple[int, int]


def _uncorrelated(rng: random.Random, R: int) -> _Pair:
    return rng.randint(1, R), rng.randint(1, R)


def _weakly(rng: random.Random, R: int) -> _Pair:
    w = rng.randint(1, R)
    return w, max(1, rng.randint(w - R // 10, w + R // 10))


def _strongly(rng: random.Random, R: int) -> _Pair:
    w = rng.randint(1, R)
    return w, w + R // 10


def _inverse_strongly(rng: random.Random, R: int) -> _Pair:
    p = rng.randint(1, R)
    return p + R // 10, p


def _almost_strongly(rng: random.Random, R: int) -> _Pair:
    w = rng.randint(1, R)
    return w, w + R // 10 + rng.randint(-(R // 500), R // 500)


def _subset_sum(rng: random.Random, R: int) -> _Pair:
    w = rng.randint(1, R)
    return w, w


def _similar_weights(rng: random.Random, R: int) -> _Pair:
    """Pisinger's numbers at R = 1000: weights 100,000 to 100,100, profits to 1000."""
    return rng.randint(100 * R, 100 * R + R // 10), rng.randint(1, R)


def _multiple_strongly(rng: random.Random, R: int) -> _Pair:
    """mstr(3R/10, 2R/10, 6)."""
    w = rng.randint(1, R)
    return w, w + (3 * R // 10 if w % 6 == 0 else 2 * R // 10)


def _profit_ceiling(rng: random.Random, R: int) -> _Pair:
    """pceil(3)."""
    w = rng.randint(1, R)
    return w, 3 * -(-w // 3)


def _circle(rng: random.Random, R: int) -> _Pair:
    """circle(2/3)."""
    w = rng.randint(1, R)
    return w, max(1, 2 * math.isqrt(4 * R * R - (w - 2 * R) ** 2) // 3)


def _spanner(rng: random.Random, R: int, n: int) -> list[_Pair]:
    """span(2, 10), strongly correlated: multiples up to 10 of two small items."""
    span = [
        (-(-2 * w // 10), -(-2 * p // 10))
        for w, p in (_strongly(rng, R) for _ in range(2))
    ]
    chosen = ((rng.choice(span), rng.randint(1, 10)) for _ in range(n))
    return [(a * w, a * p) for (w, p), a in chosen]


_EACH: dict[str, Callable[[random.Random, int], _Pair]] = {
    "uncorrelated": _uncorrelated,
    "weakly correlated": _weakly,
    "strongly correlated": _strongly,
    "inverse strongly": _inverse_strongly,
    "almost strongly": _almost_strongly,
    "subset sum": _subset_sum,
    "similar weights": _similar_weights,
    "multiple strongly": _multiple_strongly,
    "profit ceiling": _profit_ceiling,
    "circle": _circle,
}
FAMILIES = (*_EACH, "spanner")


def hard(
    family: str, n: int, R: int, seed: int, share: float = 0.5
) -> tuple[list[int], list[int], int]:
    """An instance of a family: weights, profits, and `share` of the weights' sum."""
    rng = random.Random(f"{family} {n} {R} {seed}")
    if family == "spanner":
        pairs = _spanner(rng, R, n)
    else:
        pairs = [_EACH[family](rng, R) for _ in range(n)]
    weights = [w for w, _ in pairs]
    return weights, [p for _, p in pairs], math.floor(share * sum(weights))
