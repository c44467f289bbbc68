"""Exact 0/1 knapsack for the activation memory budget, without quantization.

The partitioner asks which candidates to save: item ``i`` takes ``memory[i]``,
spares ``runtime[i]`` of recomputation, and the saved items share ``max_memory``.
Real graphs repeat layers, so a few hundred items fall into about ten classes of
equal (memory, runtime), next to runtimes that differ by nine decimal digits.

Why neither a table nor a MIP solver
------------------------------------
A table indexed by capacity must first round the sizes.  Rounding breaks the
budget in one direction and wastes it in the other, and finer steps cost memory
and time in proportion.  A MIP solver works on floats within tolerances, stops
at a relative gap, brings a dependency, and takes seconds where this module
takes milliseconds.  Here every comparison between two plans is made in integers:
floats are dyadic rationals, so one power of two turns a list of them into ints.

The bound
---------
Sort the classes by efficiency ``runtime / memory`` and save whole classes while
they fit.  The first one that does not fit is the *split class*, with efficiency
``e``.  Filling the rest of the capacity at rate ``e`` gives Dantzig's bound
``U``.  Against that relaxed plan, moving one copy of another class in or out
loses ``|runtime - e * memory|``, and leaving ``x`` of the capacity unused loses
``e * x``.  The losses add up, exactly, to the *shortfall* ``U - value`` of any
plan, so

    shortfall = e * (capacity - memory kept) + sum of the losses of the moves.

The best plan known so far therefore settles the fate of most classes: those
whose loss exceeds its shortfall stay as they are.  The others are the core: on
5,000 random items about 30 are looked at.

The frontier and the split
--------------------------
This carries the two ideas of arXiv 2608.08740 over from rows indexed by capacity
to Pareto frontiers.  A frontier holds the states (memory, loss) that no other
state beats in both memory and runtime; a *piece*, which is 1, 2, 4, ... copies
of a class, turns it into the next one, so a window of one frontier is enough.
Pieces come in order of loss, and each goes to the shorter of two frontiers.
Like the two half rows in Hirschberg's algorithm, the two meet at the capacity:
one is read upwards, the other downwards, and the heaviest partner that fits is
the best one, since runtime grows with memory along a frontier.  Two frontiers of
``k`` states stand for ``k * k`` plans.  The search ends when the next loss alone
exceeds the shortfall of the best plan, which is then optimal.

Each state carries its decisions as bits while they fit ``DECISION_BITS``.
Beyond that only the optimum's memory and loss on either side are kept, and the
pieces are split in halves whose frontiers meet at that target, again and again,
until the decisions fit.

Few classes
-----------
Real graphs seldom have more than a dozen classes, and many are equally efficient:
a matrix product costs its inner width for every byte it writes.  The bound then
leaves open how well these sizes fill the capacity.  With at most
``_FEW_CLASSES`` in the core, one frontier takes all copies of a class at a time, and
two facts about the classes still to come leave few choices: what they can fill or
free, and the *steps* of their runtimes.  FLOP counts share a large common divisor
once the cheap operators, the *dust*, are set apart, so a shortfall that no step and
no dust can reach settles the search, most often before it has begun.

Cost
----
``O(n log n)`` for grouping and sorting, plus the states visited.  Nothing grows
with the capacity.  The problem is NP-hard and frontiers can explode on instances
made for it; past ``MAX_STATES`` the best plan so far competes with a plan of the
quantized solver whose sizes are rounded up, the better one is returned, and a
warning states the proven gap.

Sources: Dantzig (1957), the bound; Nemhauser and Ullmann (1969), the frontier;
Hirschberg (1975), the split; Pisinger, "A minimal algorithm for the 0-1 knapsack
problem" (1997), the core; arXiv 2608.08740 and PR 160914, the sliding window.
"""

from __future__ import annotations

import logging
import math
from bisect import bisect_right
from collections import defaultdict
from copy import copy
from fractions import Fraction
from itertools import accumulate, compress
from numbers import Integral, Rational, Real
from operator import mul, not_
from typing import Any, NamedTuple, TYPE_CHECKING


if TYPE_CHECKING:
    from collections.abc import Sequence


log: logging.Logger = logging.getLogger(__name__)

# States made before the search gives up proving optimality: about half a second of
# CPU time for numbers of up to 20 digits, a few seconds with 16 large classes.
MAX_STATES = 1 << 19
# Bits of decisions that the states of both frontiers may carry together: 1 MiB.
DECISION_BITS = 1 << 23
# Steps of the capacity in the quantized fallback, as in `dp_knapsack`.
FALLBACK_STEPS = 10_000

# A core of no more classes than this is searched class by class.
_FEW_CLASSES = 16
# Their exact ints are listed beforehand up to this many classes.
_LISTED_CLASSES = 64
# How many classes past the split the greedy incumbent looks at.
_GREEDY_CLASSES = 32
# The two frontiers meet again once they have grown by this factor.
_GROWTH = 1.5
# Pieces whose decisions are looked up in one frontier when a split is undone.
_TRACKED_PIECES = 64

# Sizes that fill the budget exactly may pass it by their rounding: by 1e-12 of it,
# less what the float product of budget and tolerance can be off.
_TOLERANCE = (10**15 + 999, 10**15)
_EQUAL_PARTS = 10**12
# Estimates are made with numbers below this and above its inverse.
_FAR = 1e90
# Float estimates only pick the classes to look at; their rounding stays within this.
_ROUNDING = 2.0**-48
_MARGIN = 1 + 2.0**-40
# An efficiency this much closer to the split's than to zero counts as equal to it.
_TIE = 1 << 40

# (memory, loss, decisions): one entry of a frontier
_State = tuple[int, int, int]
# (cost, size, sign, loss, count, class): a class, and whether its copies move in or out
_Choice = tuple[int, int, int, int, int, int]
# (class, copies, memory, loss): what moving `copies` of a class in or out changes
_Piece = tuple[int, int, int, int]


class BudgetResult(NamedTuple):
    """What the optimal plan for one budget keeps.

    ``kept_runtime`` and ``kept_memory`` are in the units of the inputs; ``saved``
    lists the saved items in ascending order, or is None if no plan was asked for.
    """

    kept_runtime: float
    kept_memory: float
    saved: list[int] | None


def exact_knapsack(
    memory: Sequence[float], runtime: Sequence[float], max_memory: float
) -> tuple[float, list[int], list[int]]:
    """Choose the items to save so that the runtime kept is the greatest possible.

    Args:
        memory: size of each item, finite and not negative, in the budget's unit.
        runtime: cost of recomputing each item, finite; as long as ``memory``.
        max_memory: the budget; infinite keeps everything worth keeping.

    Returns:
        ``(kept_runtime, saved, recomputable)``: the runtime of the saved items,
        their indices ascending, and all other indices descending.

    The saved sizes sum to at most ``max_memory``.  Among plans of equal runtime the
    one of least memory is taken, and of equal items those with the lowest index.
    Items with no runtime are recomputed.  Ints are exact at any size; if any size or
    the budget is a float, sums within 1e-12 of the budget count as equal, so that
    [0.1, 0.2] fill 0.3.  If the search passes ``MAX_STATES``, the plan keeps to the
    budget but may not be optimal; a warning is logged with the proven gap.

    Raises:
        ValueError: unequal lengths; a number that is NaN or infinite, a negative
            size, or a NaN or negative budget.  The message names argument, index
            and value.
    """
    items = _Items(memory, runtime)
    copies = items.solve(_checked_budget("max_memory", max_memory))
    saved, recomputable = items.plan(copies)
    return items.kept_runtime(copies), saved, recomputable


def solve_many(
    memory: Sequence[float],
    runtime: Sequence[float],
    budgets: Sequence[float],
    *,
    plans: bool = False,
) -> list[BudgetResult]:
    """Solve one set of items for many budgets; equal to solving each alone.

    The items are checked, grouped and sorted once; then each budget costs one pass
    over the classes and a search.  Arguments and errors are those of
    :func:`exact_knapsack`; the results are in the order of ``budgets``.
    """
    items = _Items(memory, runtime)
    checked = [_checked_budget(f"budgets[{i}]", b) for i, b in enumerate(budgets)]
    results = []
    for budget in checked:
        copies = items.solve(budget)
        saved = items.plan(copies)[0] if plans else None
        results.append(
            BudgetResult(items.kept_runtime(copies), items.kept_memory(copies), saved)
        )
    return results


# How code that sweeps budgets, such as KnapsackEvaluator, finds the faster form.
exact_knapsack.solve_many = solve_many  # type: ignore[attr-defined]


def _checked_budget(name: str, budget: float) -> float:
    if not isinstance(budget, (float, int)):
        infinite = isinstance(budget, Real) and budget == math.inf
        budget = math.inf if infinite else _checked_number(name, budget)
    if not budget >= 0:
        raise ValueError(f"{name} must be >= 0, got {budget!r}")
    return budget


def _checked_number(name: str, value: Any) -> Any:
    """An int, Fraction or finite float of exactly this value."""
    if not isinstance(value, Real):
        raise ValueError(f"{name} must be a number, got {value!r}")  # noqa: TRY004
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Rational):
        return Fraction(value)
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value!r}")
    return float(value)


def _checked_columns(
    sizes: list[Any], costs: list[Any], first: list[int]
) -> tuple[list[Any], list[Any]]:
    """The numbers of each class as ints, floats or Fractions, if they are valid;
    ``first`` has the index of its first item."""
    columns: tuple[list[Any], list[Any]] = ([], [])
    for size, cost, i in zip(sizes, costs, first):
        for name, value, column in zip(("memory", "runtime"), (size, cost), columns):
            number = _checked_number(f"{name}[{i}]", value)
            if name == "memory" and number < 0:
                raise ValueError(f"memory[{i}] must be >= 0, got {value!r}")
            column.append(number)
    return columns


def _scale(values: list[Any], least: Any) -> Any:
    """What makes each value an exact int; ``least`` is the smallest one above 0."""
    kind = type(values[0])
    if kind is int:
        return 1
    if kind is float:
        # A float is a multiple of 2**(exponent - 53), and so is every larger one.
        return 2.0 ** max(0, 53 - math.frexp(least)[1])
    return math.lcm(*[value.denominator for value in values])


def _all_differ(values: Sequence[Any]) -> bool:
    try:
        return len(set(values)) == len(values)
    except TypeError:  # not hashable, so no number
        return False


def _grouped(
    memory: Sequence[Any], runtime: Sequence[Any]
) -> dict[tuple[Any, Any], list[int]]:
    """The indices of the items of each (memory, runtime)."""
    groups: dict[tuple[Any, Any], list[int]] = defaultdict(list)
    for i, pair in enumerate(zip(memory, runtime)):
        try:
            groups[pair].append(i)
        except TypeError:  # not hashable, so no number
            for name, value in zip(("memory", "runtime"), pair):
                _checked_number(f"{name}[{i}]", value)
    return groups


class _ExactInts:
    """Numbers times their scale, as ints, each made when it is asked for."""

    def __init__(self, values: list[Any], scale: Any) -> None:
        self.values = values
        self.scale = scale

    def __getitem__(self, i: int) -> int:
        return int(self.values[i] * self.scale)


def _exact_ints(values: list[Any], scale: Any) -> Any:
    if len(values) <= _LISTED_CLASSES:
        return [int(value * scale) for value in values]
    return _ExactInts(values, scale)


class _Items:
    """The items, grouped into classes of equal numbers, the most efficient first.

    ``indices``, ``memory``, ``runtime`` and ``count`` have one entry for each class
    that is worth saving; ``sizes`` and ``costs`` are its numbers as exact ints.
    """

    def __init__(self, memory: Sequence[float], runtime: Sequence[float]) -> None:
        self.length = len(memory)
        if self.length != len(runtime):
            raise ValueError(
                f"memory has {self.length} items, but runtime has {len(runtime)}"
            )
        self.memory: list[Any] = []
        self.runtime: list[Any] = []
        self.count: list[int] = []
        # The items of each class: a list of them, or one alone if no two are equal.
        self.indices: list[Any] = []
        self.single = _all_differ(memory)
        if not self.length:
            return
        sizes: list[Any]
        costs: list[Any]
        indices: list[Any]
        if self.single:
            sizes, costs = list(memory), list(runtime)
            indices = list(range(self.length))
        else:
            groups = _grouped(memory, runtime)
            sizes, costs = map(list, zip(*groups))
            indices = list(groups.values())
        kinds = set(map(type, sizes)), set(map(type, costs))
        # NaN and infinities survive sums; what is left to find has an odd type.
        if not (
            all(kind in ({float}, {int}) for kind in kinds)
            and min(sizes) >= 0
            and sum(sizes) < _FAR
            and -_FAR < sum(costs) < _FAR
        ):
            first = indices if self.single else [group[0] for group in indices]
            sizes, costs = _checked_columns(sizes, costs, first)
            kinds = set(map(type, sizes)), set(map(type, costs))
        if min(costs) <= 0:
            worth = [cost > 0 for cost in costs]
            sizes, costs, indices = [
                list(compress(column, worth)) for column in (sizes, costs, indices)
            ]
            if not sizes:
                return
        least_size = min(filter(None, sizes), default=sizes[0])
        least_cost = min(costs)
        # Far from over- and underflow, float estimates are off by rounding alone.
        self.rough = (
            all(kind in ({float}, {int}) for kind in kinds)
            and max(sizes) < _FAR
            and max(costs) < _FAR
            and (least_size == 0 or least_size * _FAR > 1)
            and least_cost * _FAR > 1
        )
        self.whole, self.whole_costs = kinds[0] == {int}, kinds[1] == {int}
        if not self.rough:
            sizes, costs = list(map(Fraction, sizes)), list(map(Fraction, costs))
        efficiency = [
            cost / size if size else math.inf for size, cost in zip(sizes, costs)
        ]
        order = sorted(range(len(sizes)), key=efficiency.__getitem__, reverse=True)
        self.indices = [indices[i] for i in order]
        self.memory = [sizes[i] for i in order]
        self.runtime = [costs[i] for i in order]
        self.count = [1] * len(order) if self.single else list(map(len, self.indices))
        self.memory_scale = _scale(sizes, least_size)
        self.runtime_scale = _scale(costs, least_cost)
        self.sizes = _exact_ints(self.memory, self.memory_scale)
        self.costs = _exact_ints(self.runtime, self.runtime_scale)
        self.largest = max(sizes)
        self.filled = self._filled()

    def solve(self, budget: float) -> list[int]:
        """Return how many items of each class the best plan for ``budget`` saves."""
        if not self.memory or budget >= 2 * self.filled[-1]:
            return self.count
        numerator, denominator = budget.as_integer_ratio()
        numerator *= int(self.memory_scale)
        exact = self.whole and isinstance(budget, int)
        if not exact:
            numerator *= _TOLERANCE[0]
            denominator *= _TOLERANCE[1]
        capacity = numerator // denominator
        if self.largest * self.memory_scale <= capacity:
            return _Core(self, capacity, exact).solve()
        fits = [m * self.memory_scale <= capacity for m in self.memory]
        fitting = iter(_Core(self.only(fits), capacity, exact).solve())
        return [next(fitting) if fit else 0 for fit in fits]

    def only(self, chosen: list[bool]) -> _Items:
        """The chosen classes alone."""
        items = copy(self)
        items.memory = list(compress(self.memory, chosen))
        items.runtime = list(compress(self.runtime, chosen))
        items.count = list(compress(self.count, chosen))
        items.filled = items._filled()
        items.sizes = _exact_ints(items.memory, self.memory_scale)
        items.costs = _exact_ints(items.runtime, self.runtime_scale)
        return items

    def _filled(self) -> list[Any]:
        """The memory of each class and all before it, off by rounding."""
        totals = self.memory if self.single else map(mul, self.memory, self.count)
        return list(accumulate(totals))

    def plan(self, copies: list[int]) -> tuple[list[int], list[int]]:
        """Return the saved items ascending and the others descending; of equal items
        the first ones are saved."""
        kept = bytearray(self.length)
        if self.single:
            for i in compress(self.indices, copies):
                kept[i] = 1
        else:
            for indices, number in zip(self.indices, copies):
                for i in indices[:number]:
                    kept[i] = 1
        saved = list(compress(range(self.length), kept))
        kept.reverse()
        backwards = range(self.length - 1, -1, -1)
        return saved, list(compress(backwards, map(not_, kept)))

    def kept_memory(self, copies: list[int]) -> float:
        if not copies:
            return 0
        return _sum(self.memory, copies, self.memory_scale, whole=self.whole)

    def kept_runtime(self, copies: list[int]) -> float:
        if not copies:
            return 0
        return _sum(self.runtime, copies, self.runtime_scale, whole=self.whole_costs)


def _sum(values: list[Any], copies: list[int], scale: Any, *, whole: bool) -> float:
    """The sum of ``copies[i]`` times ``values[i]``, rounded once at the end."""
    if whole:
        return int(sum(map(mul, values, copies)))
    if type(scale) is float and max(copies) == 1:
        return math.fsum(compress(values, copies))
    total = sum(
        [int(v * scale) * number for v, number in zip(values, copies) if number]
    )
    try:
        return total / int(scale)
    except OverflowError:
        return math.inf


class _Core:
    """One search, among classes that fit on their own, for one capacity.

    Sizes, costs and losses are exact ints here.  A loss is the one in runtime, times
    the scale of the runtimes and the size of the split class.
    """

    def __init__(self, items: _Items, capacity: int, exact: bool) -> None:
        self.items = items
        self.memory, self.runtime, self.count = items.memory, items.runtime, items.count
        self.sizes, self.costs = items.sizes, items.costs
        self.rounding: Any = _ROUNDING if items.rough else 0
        if exact and type(next(iter(self.memory), None)) is int:
            # Only multiples of the sizes' common divisor can be filled.
            capacity -= capacity % (math.gcd(*self.memory) or 1)
        self.capacity = capacity
        self.exact = exact
        self.states_made = 0

    def gain(self, i: int) -> int:
        """What a copy of class i is worth beyond its room at the split's efficiency."""
        return self.costs[i] * self.split_size - self.split_cost * self.sizes[i]  # type: ignore[no-any-return]

    def solve(self) -> list[int]:
        """Return how many items of each class the best plan keeps."""
        count, sizes, capacity = self.count, self.sizes, self.capacity
        if not count:
            return []
        scale = self.items.memory_scale
        level = capacity / scale if self.items.rough else Fraction(capacity, scale)
        split = min(bisect_right(self.items.filled, level), len(count) - 1)
        full = [int(m * scale) for m in self.memory[:split]]
        base = sum(full if self.items.single else map(mul, full, count))
        # The sums that chose the split are rounded: settle it exactly.
        while base > capacity:
            split -= 1
            base -= sizes[split] * count[split]
        while split < len(count) and base + sizes[split] * count[split] <= capacity:
            base += sizes[split] * count[split]
            split += 1
        if split == len(count):
            return count
        self.split = split
        self.split_size: int = sizes[split]
        self.split_cost: int = self.costs[split]
        self.step = self.split_size
        if type(self.runtime[0]) is int:
            self.step *= math.gcd(*self.runtime)
        # Sums of floats closer than the tolerance of the budget count as equal.
        self.tie = 0 if self.exact else self.split_cost * capacity // _EQUAL_PARTS
        copies = count[:split] + [0] * (len(count) - split)
        for i, number in self._search(base).items():
            copies[i] += number
        if self.states_made > MAX_STATES and self.limit > 0:
            self._warn(copies)
        return copies

    def _search(self, base: int) -> dict[int, int]:
        """Return the copies that the best plan moves in or out of the full classes."""
        tied = self._tied()
        self.ties = len(tied) > 1
        shortfall, loss, best = self._greedy(base, tied)
        misplaced = {}
        for i in tied:
            gain = self.gain(i)
            if gain and (gain > 0) != (i < self.split):
                copies = misplaced[i] = self.count[i] if gain > 0 else -self.count[i]
                base += copies * self.sizes[i]
                shortfall += copies * gain
                loss += copies * gain
        self._improve(shortfall, loss)
        if self.limit <= 0:
            return best
        if len(self.count) <= _FEW_CLASSES:
            near = [(0, i) for i in range(len(self.count)) if i != self.split]
        else:
            near = self._near()
        search = self._by_class if len(near) < _FEW_CLASSES else self._by_piece
        found = search(base, near)
        if self.states_made > MAX_STATES:
            quantized = self._quantized(base, near)
            found = found if quantized is None else quantized  # it may move nothing
        if found is not None:
            best = found
            for i, copies in misplaced.items():
                best[i] = best.get(i, 0) + copies
        return best

    def _tied(self) -> list[int]:
        """The classes as efficient as the split class, but for rounding, in order."""
        memory, runtime = self.memory, self.runtime
        e = runtime[self.split] / memory[self.split]
        close = e / _TIE
        low = high = self.split
        while low and memory[low - 1]:
            if runtime[low - 1] / memory[low - 1] - e > close:
                break
            low -= 1
        while high + 1 < len(memory):
            if e - runtime[high + 1] / memory[high + 1] > close:
                break
            high += 1
        return list(range(low, high + 1))

    def _greedy(self, base: int, tied: list[int]) -> tuple[int, int, dict[int, int]]:
        """A plan to start from: large classes first among the tied, then the others.

        Returns its shortfall and its loss, and the copies it moves from the base.
        """
        sizes, count, split = self.sizes, self.count, self.split
        room = self.capacity - base
        loss = 0
        moves = {}
        last = tied[-1]
        for i in tied:
            if i < split:
                moves[i] = -count[i]
                room += count[i] * sizes[i]
                loss += count[i] * self.gain(i)
        if len(tied) > 1:
            tied = sorted(tied, key=self.memory.__getitem__, reverse=True)
        for i in [*tied, *range(last + 1, min(last + _GREEDY_CLASSES, len(count)))]:
            size = sizes[i]
            if size <= room:
                copies = min(count[i], room // size)
                moves[i] = moves.get(i, 0) + copies
                room -= copies * size
                loss -= copies * self.gain(i)
        return self.split_cost * room + loss, loss, moves

    def _improve(self, shortfall: int, loss: int) -> None:
        """Take the measures of a better plan.

        The next better plan falls short by less, at least by a ``step``, or by as much
        with a smaller loss, and so leaves more memory free.  The loss of either is
        below ``limit``.
        """
        self.shortfall, self.loss = shortfall, loss
        self.limit = max(shortfall - self.step + 1, loss - self.tie)

    def _near(self) -> list[tuple[Any, int]]:
        """(estimated loss of a copy, class) where that loss may be below the limit."""
        bound, rounding, split = self._estimated_limit(), self.rounding, self.split
        e = self.runtime[split] / self.memory[split]
        return [
            (loss, i)
            for i, (m, r) in enumerate(zip(self.memory, self.runtime))
            if (loss := abs(r - e * m)) - rounding * r <= bound and i != split
        ]

    def _estimated_limit(self) -> Any:
        """The limit in the unit of the runtimes, not rounded down."""
        unit = self.split_size * int(self.items.runtime_scale)
        if self.items.rough:
            return self.limit / unit * _MARGIN
        return Fraction(self.limit, unit)

    def _sign(self, i: int, gain: int) -> int:
        """-1 if the copies of class i are in the relaxed plan, 1 if they are not."""
        return -1 if gain > 0 or (gain == 0 and i < self.split) else 1

    def _by_class(
        self, base: int, near: list[tuple[Any, int]]
    ) -> dict[int, int] | None:
        """Search with one frontier that takes all copies of a class at once.

        With few classes, what the later ones can still do is known beforehand, and
        leaves few choices for the copies of each.
        """
        slope, capacity, split = self.split_cost, self.capacity, self.split
        split_size, limit = self.split_size, self.limit
        core: list[_Choice] = []
        for i in [split, *(i for _, i in near)]:
            cost, size = self.costs[i], self.sizes[i]
            gain = cost * split_size - slope * size
            if -limit < gain < limit:
                sign = self._sign(i, gain)
                core.append((cost, size, sign, abs(gain), self.count[i], i))
        core.sort(reverse=True)
        first_dust, divisor = _dust(core)
        dust = _Dust(core[first_dust:], slope, split_size)
        if self._least(base, 0, divisor * split_size, dust) is None:
            return None
        core[:first_dust] = sorted(core[:first_dust], key=_branching)

        # For each class, from the last one back: what it and the later ones can free,
        # what the later ones can fill at no loss, at what rate beyond that, and are
        # worth; then the step between the runtimes that can still be reached.
        ahead = []
        free = worth = removable = divisor = 0
        rate = slope
        for j in range(len(core) - 1, -1, -1):
            cost, size, sign, loss, count, _ = core[j]
            divisor = math.gcd(0 if j + 1 == first_dust else divisor, cost)
            ahead.append((free, rate, worth, removable, divisor * split_size))
            if sign < 0:
                removable += count * size
            else:
                worth += count * cost * split_size
                if loss * _TIE < slope * size:
                    free += count * size
                elif size:
                    rate = min(rate, loss // size)
        ahead.reverse()

        # Decisions: the copies moved of each class, digits of a mixed radix.
        radices = list(accumulate([choice[4] + 1 for choice in core], mul, initial=1))
        states: list[_State] = [(base, 0, 0)]
        best = None
        for j, (_, size, sign, loss, count, _) in enumerate(core):
            free, rate, worth, removable, divisor = ahead[j]
            if j == first_dust:
                dust = _Dust([], slope, split_size)
            hopeful = []
            for state in states:
                least = self._least(state[0], state[1], divisor, dust)
                if least is not None:
                    hopeful.append((least, state))
            if not hopeful:
                break
            measures = self._dive(min(hopeful)[1], core, radices, j)
            if measures[0] < self.shortfall:
                self._improve(measures[0], measures[1])
                best = measures[2]
            floor, ceiling = capacity - free, capacity + removable
            grown: list[_State] = []
            for least, (memory, lost, decisions) in hopeful:
                if least > self.shortfall:
                    continue
                spare = self.limit - 1 - lost
                short = self.shortfall - lost
                low = capacity - (short + worth) // slope
                if rate:
                    low = max(low, floor - short // rate)
                most = min(count, spare // loss) if loss else count
                fewest = 0
                if sign > 0 and size:
                    fewest = max(0, -((memory - low) // size))
                    most = min(most, (ceiling - memory) // size)
                elif size:
                    fewest = max(0, -((ceiling - memory) // size))
                    most = min(most, (memory - low) // size)
                self.states_made += max(0, most - fewest + 1)
                if self.states_made > MAX_STATES:
                    break
                step, radix = sign * size, radices[j]
                grown += [
                    (memory + k * step, lost + k * loss, decisions + k * radix)
                    for k in range(fewest, most + 1)
                ]
            grown.sort()
            states = []
            most_runtime = None
            for state in grown:
                runtime = slope * state[0] - state[1]
                if most_runtime is None or runtime > most_runtime:
                    most_runtime = runtime
                    states.append(state)
                    if state[0] <= capacity:
                        shortfall = slope * capacity - runtime
                        if (shortfall, state[1]) < (self.shortfall, self.loss):
                            self._improve(shortfall, state[1])
                            best = state[2]
            if not states or self.states_made > MAX_STATES:
                break
        if best is None:
            return None
        moves = {}
        for _, _, sign, _, count, i in core:
            best, copies = divmod(best, count + 1)
            moves[i] = sign * copies
        return moves

    def _dive(
        self, state: _State, core: list[_Choice], radices: list[int], first: int
    ) -> _State:
        """Complete a state greedily; return its shortfall, loss and decisions."""
        memory, lost, decisions = state
        room = self.capacity - memory
        for j in range(first, len(core)):
            _, size, sign, loss, count, _ = core[j]
            if (room >= size) if sign > 0 else (room < 0 < size):
                copies = room // size if sign > 0 else -(room // size)
                copies = min(copies, count)
                room -= sign * copies * size
                lost += copies * loss
                decisions += copies * radices[j]
        if room < 0:
            return self.shortfall, lost, decisions
        return self.split_cost * room + lost, lost, decisions

    def _least(self, memory: int, lost: int, step: int, dust: _Dust) -> int | None:
        """The least shortfall that the runtimes in reach of a state allow; None if no
        better plan can follow.  The runtimes go in steps, but for the dust."""
        gap = (self.split_cost * (self.capacity - memory) + dust.below) % step
        added, added_loss = dust.above, dust.loss
        if added and not dust.below and gap < self.split_cost * dust.size:
            added, added_loss = dust.fitting(gap // self.split_cost)
            if added + step < dust.above:
                added, added_loss = dust.above - step, 0
        least = lost + gap - dust.below - added
        if least > self.shortfall or (
            least == self.shortfall and lost + added_loss >= self.loss - self.tie
        ):
            return None
        return least

    def _by_piece(
        self, base: int, near: list[tuple[Any, int]]
    ) -> dict[int, int] | None:
        """Search with two frontiers that share the pieces and meet at the capacity."""
        slope, capacity, split = self.split_cost, self.capacity, self.split
        bound = self._estimated_limit()
        # Decisions: the copies of the split class, then a bit for each piece.
        shift = self.count[split].bit_length()
        left: list[_State] = [(base, 0, 0)]
        right: list[_State] = [
            (copies * self.split_size, 0, copies)
            for copies in range(self.count[split] + 1)
        ]
        left_pieces: list[_Piece] = []
        right_pieces: list[_Piece] = []
        tracked = True
        best = None
        met = 0

        def meet() -> None:
            nonlocal best, met
            met = len(left) + len(right)
            found = _meet(left, right, capacity, slope)
            if found and found[:2] < (self.shortfall, self.loss):
                self._improve(*found[:2])
                best = (found[2], tracked, left_pieces[:], right_pieces[:])

        def noiseless(entry: tuple[Any, int]) -> tuple[Any, int]:
            """By loss; those that lose nothing from the split outward, to both sides."""
            noise = 8 * self.rounding * self.runtime[entry[1]]
            return max(0, entry[0] - noise), abs(entry[1] - split)

        near.sort(key=noiseless if self.ties else None)
        for estimated, i in near:
            if estimated - self.rounding * self.runtime[i] > bound:
                continue
            gain, size = self.gain(i), self.sizes[i]
            loss, sign = abs(gain), self._sign(i, gain)
            if loss >= self.limit:
                continue
            copies = self.count[i]
            if loss:
                copies = min(copies, (self.limit - 1) // loss)
            take = 1
            while copies > 0 and self.states_made <= MAX_STATES:
                take = min(take, copies)
                piece = (i, sign * take, sign * take * size, loss * take)
                if len(left) <= len(right):
                    bit = tracked << (shift + len(left_pieces))
                    left = _extend(left, piece, bit, self.limit, slope)
                    left_pieces.append(piece)
                    self.states_made += len(left)
                else:
                    bit = tracked << (shift + len(right_pieces))
                    right = _extend(right, piece, bit, self.limit, slope)
                    right_pieces.append(piece)
                    self.states_made += len(right)
                copies -= take
                take *= 2
            if len(left) + len(right) > _GROWTH * met:
                meet()
                bound = self._estimated_limit()
            carried = len(left) * len(left_pieces) + len(right) * len(right_pieces)
            if tracked and carried > DECISION_BITS:
                tracked = False
                mask = (1 << shift) - 1
                left = [(memory, lost, 0) for memory, lost, _ in left]
                right = [(memory, lost, d & mask) for memory, lost, d in right]
            if self.states_made > MAX_STATES:
                break
        meet()
        if best is None:
            return None
        (one, other), tracked, left_pieces, right_pieces = best
        copies = other[2] & ((1 << shift) - 1)
        moves = {split: copies}
        if tracked:
            chosen = _decode(left_pieces, one[2] >> shift)
            chosen += _decode(right_pieces, other[2] >> shift)
        else:
            size = other[0] - copies * self.split_size
            chosen = _recover(left_pieces, one[0] - base, one[1], slope)
            chosen += _recover(right_pieces, size, other[1], slope)
        for i, copies, _, _ in chosen:
            moves[i] = moves.get(i, 0) + copies
        return moves

    def _quantized(
        self, base: int, near: list[tuple[Any, int]]
    ) -> dict[int, int] | None:
        """The plan of a coarse table over the core, if it beats the best one so far.

        Sizes are rounded up and the capacity down, so the plan fits by construction.
        """
        from torch._functorch._activation_checkpointing.knapsack_hirschberg import (
            solve_quantized,
        )

        free = [self.split]
        free += [i for _, i in near if abs(self.gain(i)) < self.limit]
        inside = {i: self.count[i] for i in free if self._sign(i, self.gain(i)) < 0}
        inside.pop(self.split, None)
        memory = base - sum([self.sizes[i] * copies for i, copies in inside.items()])
        room = self.capacity - memory
        if room < 0:
            return None
        unit = max(1, -(-room // FALLBACK_STEPS))
        pieces = []
        for i in free:
            copies, take = self.count[i], 1
            while copies > 0:
                take = min(take, copies)
                pieces.append((i, take))
                copies -= take
                take *= 2
        try:
            runtimes = [float(self.runtime[i]) * take for i, take in pieces]
        except OverflowError:
            return None
        sizes = [-(-self.sizes[i] * take // unit) for i, take in pieces]
        moves = {i: -copies for i, copies in inside.items()}
        for j in solve_quantized(sizes, runtimes, room // unit):
            i, take = pieces[j]
            moves[i] = moves.get(i, 0) + take
            memory += self.sizes[i] * take
        loss = sum([abs(self.gain(i) * copies) for i, copies in moves.items()])
        shortfall = self.split_cost * (self.capacity - memory) + loss
        if (shortfall, loss) >= (self.shortfall, self.loss):
            return None
        self._improve(shortfall, loss)
        return moves

    def _warn(self, copies: list[int]) -> None:
        kept = sum([self.costs[i] * copy for i, copy in enumerate(copies) if copy])
        bound = kept * self.split_size + self.shortfall
        log.warning(
            "exact_knapsack stopped after %d states. The plan keeps to the budget; "
            "its kept runtime is within a fraction of %.3g of the optimum.",
            self.states_made,
            # So that three digits never show less than it is.
            self.shortfall / bound * 1.005,
        )


class _Dust:
    """Classes that matter less, all together, than a step of the other runtimes.

    ``below`` and ``above`` tell how far they can move a runtime, ``loss`` is that of
    adding them all, and ``size`` their memory.
    """

    def __init__(self, choices: list[_Choice], slope: int, split_size: int) -> None:
        self.choices = choices
        self.slope, self.split_size = slope, split_size
        self.below = self.above = self.loss = self.size = 0
        for cost, size, sign, loss, count, _ in choices:
            if sign < 0:
                self.below += count * cost * split_size
            else:
                self.above += count * cost * split_size
                self.loss += count * loss
                self.size += count * size

    def fitting(self, room: int) -> tuple[int, int]:
        """The most that dust in this room can be worth, and its least loss then."""
        worth = used = 0
        for cost, size, _, _, count, _ in sorted(self.choices, key=_lightness):
            if count * size > room - used:
                part = cost * (room - used) // size
                worth += part
                used += part * size // cost
                break
            worth += count * cost
            used += count * size
        worth *= self.split_size
        return worth, self.slope * used - worth


def _dust(core: list[_Choice]) -> tuple[int, int]:
    """Where the dust begins in a list by falling cost, and the divisor of the costs
    before it: where the divisor is largest against what the dust is worth."""
    left = sum([cost * count for cost, _, _, _, count, _ in core])
    divisor = most = 0
    best = (len(core), 0)
    for j, (cost, _, _, _, count, _) in enumerate(core, 1):
        divisor = math.gcd(divisor, cost)
        left -= cost * count
        if divisor - left > most:
            most, best = divisor - left, (j, divisor)
    return best


def _branching(choice: _Choice) -> tuple[bool, int]:
    """Single items first, then large ones: few branches, and soon a divisor."""
    return choice[4] > 1, -choice[1]


def _lightness(choice: _Choice) -> Any:
    return Fraction(choice[1], choice[0])


def _extend(
    states: list[_State], piece: _Piece, bit: int, limit: int, slope: int
) -> list[_State]:
    """The frontier of the states with and without the piece, of loss below limit."""
    _, _, size, loss = piece
    room = limit - loss
    merged = states + [(m + size, x + loss, d | bit) for m, x, d in states if x < room]
    merged.sort()
    frontier = []
    most_runtime = None
    for state in merged:
        runtime = slope * state[0] - state[1]
        if (most_runtime is None or runtime > most_runtime) and state[1] < limit:
            most_runtime = runtime
            frontier.append(state)
    return frontier


def _meet(
    left: list[_State], right: list[_State], capacity: int, slope: int
) -> tuple[int, int, tuple[_State, _State]] | None:
    """The two states that fit the capacity together with the least shortfall.

    Returns (shortfall, loss, states), of equal shortfalls the one of least loss,
    which leaves the most memory free; None if no two states fit.
    """
    best = None
    least = loss = 0
    partner = len(right) - 1
    for state in left:
        room = capacity - state[0]
        while partner >= 0 and right[partner][0] > room:
            partner -= 1
        if partner < 0:
            break
        other = right[partner]
        total = state[1] + other[1]
        shortfall = slope * (room - other[0]) + total
        if best is None or shortfall < least or (shortfall == least and total < loss):
            best, least, loss = (state, other), shortfall, total
    return None if best is None else (least, loss, best)


def _decode(pieces: list[_Piece], decisions: int) -> list[_Piece]:
    return [piece for j, piece in enumerate(pieces) if decisions >> j & 1]


def _recover(pieces: list[_Piece], size: int, loss: int, slope: int) -> list[_Piece]:
    """Hirschberg's split: find pieces that add up to this size and this loss."""
    chosen = []
    stack = [(pieces, size, loss)]
    while stack:
        pieces, size, loss = stack.pop()
        tracked = len(pieces) <= _TRACKED_PIECES
        middle = 0 if tracked else len(pieces) // 2
        frontiers = []
        for half in (pieces[:middle], pieces[middle:]):
            states: list[_State] = [(0, 0, 0)]
            for j, piece in enumerate(half):
                states = _extend(states, piece, tracked << j, loss + 1, slope)
            frontiers.append(states)
        found = _meet(frontiers[0], frontiers[1], size, slope)
        assert found is not None
        one, other = found[2]
        if tracked:
            chosen += _decode(pieces, other[2])
        else:
            stack.append((pieces[:middle], one[0], one[1]))
            stack.append((pieces[middle:], other[0], other[1]))
    return chosen
