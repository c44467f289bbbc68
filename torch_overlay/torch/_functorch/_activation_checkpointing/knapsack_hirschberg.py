"""The 0/1 knapsack of the activation memory budget, in memory that grows with W alone.

An item is an activation that can be recomputed: its weight is the memory to keep
it, its value the runtime of recomputing it.  As in ``dp_knapsack``, memory is
rounded to 1/10,000 of its unit, and the rounded problem is solved exactly.
Below, n is the number of items and W the capacity in such quanta.

Why not the full table?
-----------------------
The textbook table has a row of W + 1 totals after every item, because the items
are recovered by walking the rows backwards: O(n W) memory, hundreds of gigabytes
when memory is given in bytes.  A row depends only on the one before it, so the
best total needs a single row.  The items are what needs the table.

Algorithm
---------
1. Items that need no search are decided at once: no runtime to save, no memory to
   spend, larger than the capacity, or, of one weight w, not among the
   ``W // w`` longest.  What is left is divided by the weights' common divisor.
2. A row, ``row[j]`` = the most runtime that j quanta can keep, takes the items one
   at a time, in place, from high capacities to low, in blocks that stay in cache.
   Only capacities up to the weight so far, and from the capacity less the weight
   still to come, can matter.
3. If one byte per decision fits in the allowance (``_TABLE_BYTES``, or the bytes
   of a second row if those are more), the decisions are kept and walked back.
4. Otherwise Hirschberg's divide and conquer: one row for each half of the items.
   The plan crosses from one half to the other at the j that maximises
   ``left[j] + right[W - j]``.  Each half is then a problem of its own, with j and
   W - j quanta, and the two share out exactly the W they came from.

The halves of a split have half its items and together its capacity, so every
level costs half of the one above, and all levels less than twice one pass: O(n W)
time.  Memory is 16 bytes per quantum, or 8 and a table of at most 32 MiB.

Method: Hirschberg, "A linear space algorithm for computing maximal common
subsequences" (1975); applied to this knapsack by Maczan, arXiv 2608.08740.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import torch
from torch.utils._mode_utils import no_dispatch


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


# Quanta per unit of memory, as in dp_knapsack: plans of both can be compared.
_QUANTA_PER_UNIT = 10_000

# Entries updated at once.  A block and its temporary stay in a core's cache, and it
# is as long as torch runs an operation on one thread, without waking the others.
_BLOCK = 32_768

# Bytes of decisions to keep before a segment is split rather than walked back.
_TABLE_BYTES = 32 * 2**20


def dp_knapsack_sliding_hirschberg(
    memory: list[float], runtime: list[float], max_memory: float
) -> tuple[float, list[int], list[int]]:
    """Choose the items to save so that the runtime kept is greatest within a budget.

    ``memory[i]`` and ``max_memory`` share one unit, usually a fraction of the
    activation memory; both are rounded to 1/10,000 of it, half to even.  The plan
    never exceeds the rounded budget; unrounded, it can do so by the rounding, half a
    quantum an item at most.  ``runtime[i]`` is in any unit.  Totals are float64, or
    int64 where that alone is exact.

    Returns ``(kept_runtime, saved, recomputable)``: the sum of ``runtime`` over
    ``saved``, the saved indices ascending, and all other indices descending.  Items
    without positive runtime are recomputed.  Of equal totals the plan with least
    rounded memory is taken, then the one that saves items of lower index.  (If the
    items had to be split, the half of lower indices gets the more memory; of items
    alike in memory and runtime the lower indices are always saved first.)

    An infinite ``max_memory`` saves everything worth saving.  ValueError: lists of
    unequal length, a NaN or infinite item, negative memory, a NaN or negative budget.

    O(n W) time and O(W) memory for n items and W quanta of budget; see the module.
    """
    _check(memory, runtime)
    weights = [_quantize(amount) for amount in memory]
    capacity = _quantize_budget("max_memory", max_memory, weights)
    saved = solve_quantized(weights, runtime, capacity)
    kept = set(saved)
    recomputable = [i for i in reversed(range(len(weights))) if i not in kept]
    return _total(runtime[i] for i in saved), saved, recomputable


def kept_runtime_profile(
    memory: list[float], runtime: list[float], budgets: Sequence[float]
) -> list[float]:
    """The runtime kept under each of ``budgets``, from one pass for all of them.

    Entry k is the ``kept_runtime`` that ``dp_knapsack_sliding_hirschberg`` returns
    for ``budgets[k]``, up to the rounding of float64 sums (none if the runtimes are
    whole and sum to less than 2**53).  Same arguments and errors, O(n W) time and
    8 bytes per quantum of the largest budget.
    """
    _check(memory, runtime)
    weights = [_quantize(amount) for amount in memory]
    capacities = [
        _quantize_budget(f"budgets[{k}]", budget, weights)
        for k, budget in enumerate(budgets)
    ]
    capacity = max(capacities, default=0)
    free, others = _peel(weights, runtime, capacity)
    items = free + others
    divisor = math.gcd(*(weights[i] for i in items)) or 1
    reduced = [weights[i] // divisor for i in items]
    last = min(capacity // divisor, sum(reduced))
    values, unit = _row_values([runtime[i] for i in items])
    with _plain_tensors():
        row = _new_row(last, values)
        _sweep(row, reduced, values, _windows(reduced, 0, last))
        asked = [min(capacity // divisor, last) for capacity in capacities]
        kept = row[torch.tensor(asked, dtype=torch.int64, device="cpu")].tolist()
    return [float(value * unit) for value in kept]


def solve_quantized(
    weights: Sequence[int], runtimes: Sequence[float], capacity: int
) -> list[int]:
    """Solve the knapsack on whole weights; return the saved indices, ascending.

    ``weights`` and ``capacity`` are whole numbers of one unit, not negative;
    ``runtimes`` are finite.  Ties as in ``dp_knapsack_sliding_hirschberg``.
    O(n W) time and O(W) memory, W being ``capacity`` over the weights' divisor.
    """
    saved, items = _peel(weights, runtimes, capacity)
    if sum(weights[i] for i in items) <= capacity:
        saved += items
    elif items:
        divisor = math.gcd(*(weights[i] for i in items))
        values, _ = _row_values([runtimes[i] for i in items])
        with _plain_tensors():
            chosen = _search(
                [weights[i] // divisor for i in items], values, capacity // divisor
            )
        saved += [items[k] for k in chosen]
        _top_up(saved, items, weights, capacity)
    return _lowest_indices_first(saved, weights, runtimes)


def _check(memory: Sequence[float], runtime: Sequence[float]) -> None:
    if len(memory) != len(runtime):
        raise ValueError(
            f"memory has {len(memory)} items but runtime has {len(runtime)}"
        )
    for name, numbers in (("memory", memory), ("runtime", runtime)):
        for i, number in enumerate(numbers):
            if not _is_finite(number):
                raise ValueError(f"{name}[{i}] = {number!r} is not a finite number")
    for i, amount in enumerate(memory):
        if amount < 0:
            raise ValueError(f"memory[{i}] = {amount!r} is negative")


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except (OverflowError, TypeError):  # an int beyond float64's range, or no number
        return False


def _quantize(amount: float) -> int:
    """Round to quanta, half to even."""
    scaled = amount * _QUANTA_PER_UNIT
    if scaled == math.inf:  # a float so large is a whole number already
        return int(amount) * _QUANTA_PER_UNIT
    return round(scaled)


def _quantize_budget(name: str, budget: float, weights: Sequence[int]) -> int:
    if not budget >= 0:
        raise ValueError(f"{name} = {budget!r} is NaN or negative")
    return sum(weights) if budget == math.inf else _quantize(budget)


def _total(runtimes: Iterator[float]) -> float:
    try:
        return math.fsum(runtimes)
    except OverflowError:
        return math.inf


def _peel(
    weights: Sequence[int], runtimes: Sequence[float], capacity: int
) -> tuple[list[int], list[int]]:
    """Return the items that any plan saves, and those that need a search, ascending."""
    free: list[int] = []
    by_weight: dict[int, list[int]] = defaultdict(list)
    for i, (weight, runtime) in enumerate(zip(weights, runtimes)):
        if runtime <= 0 or weight > capacity:
            continue
        if weight == 0:
            free.append(i)
        else:
            by_weight[weight].append(i)
    items: list[int] = []
    for weight, alike in by_weight.items():
        # No plan holds more than this many of one weight: only the longest count.
        most = capacity // weight
        if len(alike) > most:
            alike.sort(key=lambda i: (-runtimes[i], i))
        items += alike[:most]
    return free, sorted(items)


def _row_values(runtimes: Sequence[float]) -> tuple[list[float], float]:
    """Return the runtimes as numbers whose sums a row holds best, and their unit."""
    total = sum(map(float, runtimes))
    if 2**53 < total < 2**63 and all(runtime == int(runtime) for runtime in runtimes):
        # Whole totals that float64 would round: int rows, which cost a little more.
        exact: list[float] = [int(runtime) for runtime in runtimes]
        if sum(exact) < 2**63:
            return exact, 1
    if total > 2.0**1022:  # sums could overflow
        unit = 2.0 ** len(runtimes).bit_length()
        return [runtime / unit for runtime in runtimes], unit
    return [float(runtime) for runtime in runtimes], 1.0


@contextlib.contextmanager
def _plain_tensors() -> Iterator[None]:
    """Plain CPU tensors, whatever modes the compiler or the user runs us under."""
    with torch._C.DisableTorchFunction(), no_dispatch(), torch.inference_mode():
        yield


def _new_row(capacity: int, values: Sequence[float]) -> torch.Tensor:
    whole = bool(values) and isinstance(values[0], int)
    dtype = torch.int64 if whole else torch.float64
    return torch.empty(capacity + 1, dtype=dtype, device="cpu")


def _windows(weights: Sequence[int], lowest: int, highest: int) -> list[range]:
    """The capacities to update for each item, if only lowest to highest are asked for.

    No item weighs more than ``highest``, and all together no less.
    """
    windows = []
    so_far, to_come = 0, sum(weights)
    for weight in weights:
        so_far += weight
        to_come -= weight
        low = max(weight, lowest - to_come)
        windows.append(range(low, min(so_far, highest) + 1))
    return windows


def _sweep(
    row: torch.Tensor,
    weights: Sequence[int],
    values: Sequence[float],
    windows: Sequence[range],
    decisions: torch.Tensor | None = None,
) -> None:
    """Make ``row[j]`` the most value that j quanta hold, for the windows' last range.

    ``decisions`` receives, window after window, whether each capacity saves the item.
    """
    scratch = torch.empty(min(_BLOCK, len(row)), dtype=row.dtype, device="cpu")
    row[0] = 0
    top = 0  # entries beyond are not written yet; all items so far fit in them
    everything: float = 0
    offset = 0
    for weight, value, window in zip(weights, values, windows):
        low, end = window.start, window.stop
        for start in range(top + 1, end, _BLOCK):
            row[start : min(start + _BLOCK, end)].fill_(everything)
        top = max(top, end - 1)
        everything += value
        offset -= low
        # From high to low, so that what a block reads is from before this item.
        while end > low:
            start = max(low, end - _BLOCK)
            without = row[start:end]
            saving = scratch[: end - start]
            torch.add(row[start - weight : end - weight], value, out=saving)
            if decisions is not None:
                # On a tie save: the walk back visits lower indices first.
                kept = decisions[offset + start : offset + end]
                torch.ge(saving, without, out=kept)
            torch.maximum(without, saving, out=without)
            end = start
        offset += window.stop


def _search(
    weights: Sequence[int], values: Sequence[float], capacity: int
) -> list[int]:
    """Return the positions of the items to save; not all fit, but each alone does."""
    saved: list[int] = []
    row = _new_row(capacity, values)
    allowance = max(_TABLE_BYTES, row.nbytes)
    table = bytearray()
    # A plan that leaves more than this much unused has room for another item.
    slack = _weight_left_out(weights, capacity) - 1
    # The highest index first, so that the walk back decides from the lowest on.
    segments = [(list(reversed(range(len(weights)))), capacity)]
    while segments:
        segment, capacity = segments.pop()
        items = [k for k in segment if weights[k] <= capacity]
        w, v = [weights[k] for k in items], [values[k] for k in items]
        if sum(w) <= capacity:
            saved += items
            continue
        windows = _windows(w, capacity - slack, capacity)
        cells = sum(map(len, windows))
        if cells <= allowance:
            if len(table) < cells:
                table = bytearray(cells)
            _sweep(row, w, v, windows, torch.frombuffer(table, dtype=torch.bool))
            used = _least(row, capacity - slack, capacity)
            saved += (items[k] for k in _walk_back(table, w, windows, used))
        else:
            if len(table) < allowance:
                table = bytearray(allowance)
            other = torch.frombuffer(table, dtype=row.dtype, count=len(row))
            half = len(items) // 2
            upper = _half_row(other, w[:half], v[:half], capacity, slack, sum(w[half:]))
            lower = _half_row(row, w[half:], v[half:], capacity, slack, sum(w[:half]))
            j, rest = _meet(lower, upper, capacity)
            segments += [(items[:half], rest), (items[half:], j)]
        slack = 0  # the capacities that a split hands out are used up
    return saved


def _weight_left_out(weights: Sequence[int], capacity: int) -> int:
    """A weight such that every plan leaves out an item of at most it."""
    ascending = sorted(weights)
    fitting = sum(total <= capacity for total in itertools.accumulate(ascending))
    return ascending[fitting]


def _least(row: torch.Tensor, low: int, high: int) -> int:
    """The least capacity from ``low`` on that holds as much value as ``high``."""
    return low + int(torch.searchsorted(row[low : high + 1], row[high]))


def _walk_back(
    table: bytearray, weights: Sequence[int], windows: Sequence[range], capacity: int
) -> Iterator[int]:
    """Yield the positions saved, last to first, by a plan that uses ``capacity``."""
    offset = sum(map(len, windows))
    for k in reversed(range(len(weights))):
        window = windows[k]
        offset -= len(window)
        # Above the window as at its top: everything so far fits.
        capacity = min(capacity, window.stop - 1)
        if capacity >= window.start and table[offset + capacity - window.start]:
            capacity -= weights[k]
            yield k


def _half_row(
    row: torch.Tensor,
    weights: Sequence[int],
    values: Sequence[float],
    capacity: int,
    slack: int,
    other: int,
) -> tuple[torch.Tensor, int]:
    """Sweep one half of a split, the other half weighing ``other`` in all.

    Return the row and the least capacity from which on it was asked for.
    """
    low = max(0, capacity - slack - other)
    high = min(capacity, sum(weights))
    _sweep(row, weights, values, _windows(weights, low, high))
    return row[: high + 1], low


def _meet(
    left: tuple[torch.Tensor, int], right: tuple[torch.Tensor, int], capacity: int
) -> tuple[int, int]:
    """Return the least capacities of both halves that together hold the most value.

    They sum to at most ``capacity``; of equal pairs, the left half has more.
    """
    (left_row, left_low), (right_row, right_low) = left, right
    first, last = capacity - len(right_row) + 1, len(left_row) - 1
    most = -math.inf
    starts: list[int] = []  # of the blocks that attain it
    for start in range(first, last + 1, _BLOCK):
        both = _facing(left_row, right_row, capacity, start)
        value = both.max().item()
        if value > most:
            most = value
            starts.clear()
        if value == most:
            starts.append(start)
    best = (math.inf, 0)  # capacity used, capacity of the left half, negated
    for start in starts:
        ties = torch.nonzero(_facing(left_row, right_row, capacity, start) == most)
        # Rows are steps: one look at each step, from its least capacity.
        steps = torch.unique_consecutive(left_row[start + ties.flatten()])
        j = left_low + torch.searchsorted(left_row[left_low:], steps)
        across = right_row[(capacity - j).clamp(max=len(right_row) - 1)]
        rest = right_low + torch.searchsorted(right_row[right_low:], across)
        used = j + rest
        least = used.min()
        best = min(best, (int(least), -int(j[used == least].max())))
    used_least, negated = best
    return -negated, int(used_least) + negated


def _facing(
    left_row: torch.Tensor, right_row: torch.Tensor, capacity: int, start: int
) -> torch.Tensor:
    """``left_row[j] + right_row[capacity - j]`` for a block of j from ``start`` on."""
    left = left_row[start : start + _BLOCK]
    end = capacity - start + 1
    return left + right_row[end - len(left) : end].flip(0)


def _top_up(
    saved: list[int], items: list[int], weights: Sequence[int], capacity: int
) -> None:
    """Save what still fits: a float64 total does not see a value 2**53 times less."""
    taken = set(saved)
    unused = capacity - sum(weights[i] for i in saved)
    for i in items:
        if i not in taken and weights[i] <= unused:
            unused -= weights[i]
            saved.append(i)


def _lowest_indices_first(
    saved: Sequence[int], weights: Sequence[int], runtimes: Sequence[float]
) -> list[int]:
    """Exchange saved items for lower ones just like them; return them ascending."""
    alike = Counter((weights[i], runtimes[i]) for i in saved)
    lowest = []
    for i, item in enumerate(zip(weights, runtimes)):
        if alike[item] > 0:
            alike[item] -= 1
            lowest.append(i)
    return lowest
