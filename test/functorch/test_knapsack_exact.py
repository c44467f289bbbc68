# Owner(s): ["module: functorch"]
"""Tests of knapsack_exact.py: the optimum of the numbers as given, ties, errors, limits.

Every expected value comes from outside the module: all subsets in exact integers, a
plain table in NumPy, scipy's milp with no gap, or the optima that CP-SAT proved for the
captured instances. Floats are read as the fractions that they are.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import re
import subprocess
import sys
import textwrap
import unittest
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from unittest import mock

import numpy as np
import torch
import torch._functorch._activation_checkpointing.knapsack_exact as knapsack
from hypothesis import assume, given, settings, strategies as st
from torch._functorch._activation_checkpointing import knapsack_hirschberg
from torch._functorch._activation_checkpointing.knapsack_exact import (
    BudgetResult,
    exact_knapsack,
    solve_many,
)
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.common_utils import (
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
    TestCase,
)


sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from overlaykit import instances


INSTANCES = Path(__file__).resolve().parents[1] / "instances"
TOLERANCE = Fraction(1, 10**12)  # of the budget, for sums of floats
GAP = re.compile(r"stopped after (\d+) states.* within a fraction of (\S+) of")


def whole(numbers):
    """The numbers times their least common denominator, as ints; and that number."""
    fractions = [Fraction(number) for number in numbers]
    scale = math.lcm(1, *(fraction.denominator for fraction in fractions))
    return [int(fraction * scale) for fraction in fractions], scale


def subset_sums(numbers):
    """The sum of every subset, exact: in int64 if they all fit, else in Python ints."""
    fits = sum(map(abs, numbers)) < 2**62
    sums = np.zeros(1, dtype=np.int64 if fits else object)
    for number in numbers:
        sums = np.concatenate([sums, sums + number])
    return sums


class AllSubsets:
    """The answer by trying every subset of the items that are worth keeping."""

    def __init__(self, memory, runtime):
        worth = [i for i, value in enumerate(runtime) if value > 0]
        sizes, self.memory_scale = whole(memory)
        costs, _ = whole(runtime)
        self.memory = subset_sums([sizes[i] for i in worth])
        self.runtime = subset_sums([costs[i] for i in worth])

    def best(self, budget):
        """The greatest total cost within a budget, in the unit of `whole`."""
        return self.runtime[self.memory <= budget * self.memory_scale // 1].max()

    def least_memory(self, cost):
        return self.memory[self.runtime == cost].min()


def table_best(memory, runtime, capacity):
    """The greatest runtime, and the least memory for it, from the textbook's rows."""
    row = np.zeros(capacity + 1, dtype=np.int64)
    for size, cost in zip(memory, runtime):
        if cost > 0 and size <= capacity:
            row[size:] = np.maximum(row[size:], row[: capacity + 1 - size] + cost)
    return int(row[-1]), int(np.argmax(row == row[-1]))


def as_float(number):
    try:
        return float(number)
    except OverflowError:
        return math.inf


def total(numbers, plan):
    return sum(Fraction(numbers[i]) for i in plan)


# Ways to make small instances take the paths that only large ones take by themselves.
PATHS = {
    "as_is": {"_FEW_CLASSES": knapsack._FEW_CLASSES},
    "two_frontiers": {"_FEW_CLASSES": 0},
    "by_class": {"_FEW_CLASSES": 64, "_GREEDY_CLASSES": 0},
    "split": {"_FEW_CLASSES": 0, "DECISION_BITS": 0, "_TRACKED_PIECES": 1},
    "split_late": {"_FEW_CLASSES": 0, "DECISION_BITS": 40, "_TRACKED_PIECES": 3},
    "lazy": {"_LISTED_CLASSES": 0, "_GREEDY_CLASSES": 0, "_GROWTH": 1.0},
    "one_meeting": {"_FEW_CLASSES": 0, "_GREEDY_CLASSES": 0, "_GROWTH": 1e9},
}


def path(name):
    return mock.patch.multiple(knapsack, **PATHS[name])


class ExactTestCase(TestCase):
    def same(self, actual, expected, *about):
        """Equal without the tolerances of torch's assertEqual."""
        if actual != expected:
            self.fail(f"{actual!r} != {expected!r}; {about}")

    def check_shape(self, memory, runtime, budget, result):
        """All of the contract but the optimum; returns the plan's exact measures."""
        about = memory, runtime, budget
        kept, saved, recomputable = result
        count = len(memory)
        self.same(saved, sorted(saved), *about)
        self.same(recomputable, sorted(recomputable, reverse=True), *about)
        self.same(sorted(saved + recomputable), list(range(count)), *about)
        kept_items, left_out = set(saved), set()
        for i in range(count):
            item = memory[i], runtime[i]
            if i not in kept_items:
                left_out.add(item)
                # What takes no memory is always kept.
                self.same(memory[i] == 0 and runtime[i] > 0, False, i, *about)
            else:
                self.same(runtime[i] > 0, True, i, *about)
                # Of equal items the first ones are kept.
                self.same(item in left_out, False, i, *about)
        used, gained = total(memory, saved), total(runtime, saved)
        if budget != math.inf:
            limit = Fraction(budget) * (1 + self.tolerance(memory, budget))
            self.assertLessEqual(used, limit, about)
        self.same(as_float(kept), as_float(gained), *about)
        if all(type(value) is int for value in runtime):
            self.same(kept, gained, *about)
            self.assertIs(type(kept), int)
        return gained, used

    def tolerance(self, memory, budget):
        exact = all(isinstance(size, int) for size in [*memory, budget])
        return 0 if exact else TOLERANCE

    def check_optimal(self, memory, runtime, budget, result, subsets=None):
        about = memory, runtime, budget
        gained, used = self.check_shape(memory, runtime, budget, result)
        subsets = subsets or AllSubsets(memory, runtime)
        cost = gained * whole(runtime)[1]
        tolerance = self.tolerance(memory, budget)
        low = subsets.best(Fraction(budget))
        high = subsets.best(Fraction(budget) * (1 + tolerance)) if tolerance else low
        self.assertTrue(low <= cost <= high, (low, cost, high, about))
        least = Fraction(int(subsets.least_memory(int(cost))), subsets.memory_scale)
        self.assertLessEqual(used - least, Fraction(budget) * tolerance, about)


def plain(rng, n):
    largest = rng.choice([5, 50, 10**6])
    memory = [rng.randint(0, largest) for _ in range(n)]
    runtime = [rng.randint(-largest // 9, largest) for _ in range(n)]
    return memory, runtime, rng.randint(0, sum(memory) + 1)


def ties(rng, n):
    # Efficiencies of a few values at most, sums that repeat all the time.
    memory = [rng.randint(0, 6) for _ in range(n)]
    rates = rng.choice([(1,), (1, 2), (0, 1, 2)])
    runtime = [size * rng.choice(rates) + (rng.random() < 0.1) for size in memory]
    return memory, runtime, rng.randint(0, sum(memory))


def exact_fits(rng, n):
    memory = [rng.randint(1, 10**9) for _ in range(n)]
    runtime = [rng.randint(1, 1000) for _ in range(n)]
    chosen = [size for size in memory if rng.random() < 0.5]
    budget = sum(chosen) - rng.choice([0, 0, 1])
    return memory, runtime, max(budget, 0)


def dust(rng, n):
    # FLOPs of matrix products beside the 1 of everything cheap.
    memory = [rng.choice([8, 64, 4096]) * rng.randint(1, 9) for _ in range(n)]
    runtime = [rng.choice([1, 1, 2, 10**9, 10**18]) * rng.randint(1, 3) for _ in memory]
    return memory, runtime, rng.randint(0, sum(memory))


def layers(rng, n):
    # A few classes, many copies; products that are all equally efficient.
    kinds = []
    for _ in range(rng.randint(1, 5)):
        size = rng.choice([4096, 12288, 16384, 65536, 65540])
        kinds.append((size, rng.choice([1, 1, size * 512, size * 2048, 10**7 + 1])))
    items = [rng.choice(kinds) for _ in range(n)]
    memory, runtime = [size for size, _ in items], [cost for _, cost in items]
    return memory, runtime, sum(memory) * rng.randint(0, 100) // 100


def huge(rng, n):
    # Beyond 2**53, where floats skip whole numbers, beyond 2**64 and the floats' range.
    memory = [2**70 + rng.randint(-9, 9) for _ in range(n)]
    scale = rng.choice([1, 10**18, 2**64, 10**320])
    runtime = [scale * rng.randint(1, 9) + rng.randint(0, 3) for _ in range(n)]
    return memory, runtime, sum(rng.sample(memory, rng.randint(0, n)))


def normalized(rng, n):
    # As the partitioner hands it over: bytes as a fraction of the span, and its budget.
    memory, runtime, budget = rng.choice([layers, dust, plain])(rng, n)
    span = max(1, sum(memory) - rng.randint(0, 3))
    memory = [(size / 1e9) / (span / 1e9) for size in memory]
    return memory, runtime, rng.choice([budget / span, round(budget / span, 1)])


def decimals(rng, n):
    # Tenths and hundredths, that no float is: fits only show within the tolerance.
    memory = [rng.randint(0, 12) / 10 for _ in range(n)]
    runtime = [rng.randint(1, 300) / 100 for _ in range(n)]
    return memory, runtime, rng.randint(0, 80) / 10


def wide(rng, n):
    # Magnitudes far apart, for which rounded sums would hide the small ones.
    memory = [math.ldexp(rng.random(), rng.randint(-60, 3)) for _ in range(n)]
    runtime = [math.ldexp(rng.random(), rng.randint(-30, 60)) for _ in range(n)]
    return memory, runtime, math.fsum(memory) * rng.random()


def mixed(rng, n):
    kinds = [
        int,
        float,
        Fraction,
        np.float64,
        np.int64,
        lambda x: Fraction(x, rng.randint(3, 7)),
    ]
    memory = [rng.choice(kinds)(rng.randint(0, 20)) for _ in range(n)]
    runtime = [rng.choice(kinds)(rng.randint(0, 20)) for _ in range(n)]
    return memory, runtime, rng.choice(kinds)(rng.randint(0, 90))


FAMILIES = [
    plain, ties, exact_fits, dust, layers, huge, normalized, decimals, wide, mixed,
]  # fmt: skip


class TestOptimal(ExactTestCase):
    @parametrize("family", FAMILIES, name_fn=lambda family: family.__name__)
    def test_random_against_all_subsets(self, family):
        rng = random.Random(f"{family.__name__}")
        others = itertools.cycle([name for name in PATHS if name != "as_is"])
        largest = 16 if family in (plain, ties, exact_fits, layers) else 13
        for _ in range(600):
            memory, runtime, budget = family(rng, rng.randint(0, largest))
            subsets = AllSubsets(memory, runtime)
            for name in ("as_is", next(others)):
                with path(name):
                    result = exact_knapsack(memory, runtime, budget)
                self.check_optimal(memory, runtime, budget, result, subsets)

    @parametrize("name", sorted(PATHS))
    def test_integers_against_the_full_table(self, name):
        rng = random.Random(sorted(PATHS).index(name))
        for n in (20, 40, 60, 100, 150, 200, 250, 300):
            for make in (self.alike, self.correlated, self.layered, self.spread):
                memory, runtime = make(rng, n)
                capacity = int(sum(memory) * rng.choice([0.05, 0.2, 0.5, 0.8]))
                with path(name):
                    result = exact_knapsack(memory, runtime, capacity)
                measures = self.check_shape(memory, runtime, capacity, result)
                self.same(measures, table_best(memory, runtime, capacity), name, n)

    def alike(self, rng, n):
        return [rng.randint(95, 105) for _ in range(n)], [
            rng.randint(95, 105) for _ in range(n)
        ]

    def correlated(self, rng, n):
        memory = [rng.randint(1, 100) for _ in range(n)]
        return memory, [size + rng.choice([10, 10, 11]) for size in memory]

    def spread(self, rng, n):
        return [rng.randint(1, 400) for _ in range(n)], [
            rng.randint(1, 10**9) for _ in range(n)
        ]

    def layered(self, rng, n):
        kinds = []
        for _ in range(9):
            size = rng.randint(1, 400)
            width = rng.choice([0, 0, 256, 256, 1024])
            kinds.append((size, size * width * 3 or 1))
        items = [rng.choice(kinds) for _ in range(n)]
        return [size for size, _ in items], [cost for _, cost in items]

    @parametrize("name", ["as_is", "two_frontiers"])
    def test_normalized_sizes_against_the_full_table(self, name):
        # The budget falls on a whole capacity, where rounding could decide, or between.
        rng = random.Random(17)
        for n in (20, 60, 100, 150, 200):
            for make in (self.alike, self.correlated, self.layered, self.spread):
                sizes, runtime = make(rng, n)
                span = sum(sizes) + rng.randint(0, 50)
                memory = [(size / 1e9) / (span / 1e9) for size in sizes]
                capacity = rng.randint(0, span)
                best, least = table_best(sizes, runtime, capacity)
                for budget in (capacity / span, (capacity + 0.9) / span):
                    with path(name):
                        result = exact_knapsack(memory, runtime, budget)
                    self.check_shape(memory, runtime, budget, result)
                    self.same(result[0], best, memory, runtime, budget)
                    self.same(total(sizes, result[1]), least, memory, runtime, budget)

    def test_integers_against_milp(self):
        from scipy.optimize import Bounds, LinearConstraint, milp

        rng = random.Random(7)
        for n in (50, 100, 200, 300):
            for largest in (1000, 10**6):
                memory = [rng.randint(1, largest) for _ in range(n)]
                runtime = [rng.randint(1, largest) for _ in range(n)]
                capacity = sum(memory) * 2 // 5
                found = milp(
                    -np.array(runtime),
                    constraints=LinearConstraint(np.array(memory), ub=capacity),
                    integrality=np.ones(n),
                    bounds=Bounds(0, 1),
                    options={"mip_rel_gap": 0},
                )
                self.assertTrue(found.success)
                result = exact_knapsack(memory, runtime, capacity)
                self.check_shape(memory, runtime, capacity, result)
                self.same(result[0], round(-found.fun), n, largest)

    def test_decisions_that_do_not_fit_are_recovered(self):
        # The split must have run, more than once deep, and with every length of halves.
        rng = random.Random(5)
        depths = set()
        for n in range(10, 50):
            memory, runtime = self.correlated(rng, n)
            capacity = sum(memory) // 2
            recover = mock.Mock(wraps=knapsack._recover)
            with path("split"), mock.patch.multiple(knapsack, _recover=recover):
                result = exact_knapsack(memory, runtime, capacity)
                for call in recover.call_args_list:
                    depths.add(len(call.args[0]))
            measures = self.check_shape(memory, runtime, capacity, result)
            self.same(measures, table_best(memory, runtime, capacity), n)
        self.assertGreater(len(depths), 8)
        self.assertGreater(max(depths), 8)

    def test_decisions_stay_within_the_allowance(self):
        rng = random.Random(5)
        memory = [rng.randint(1, 10**5) for _ in range(40)]
        runtime = [size + 10**4 for size in memory]
        most = []

        def extend(states, piece, bit, limit, slope):
            frontier = original(states, piece, bit, limit, slope)
            most.append(max((state[2] for state in frontier), default=0).bit_length())
            return frontier

        original = knapsack._extend
        with path("two_frontiers"), mock.patch.object(knapsack, "_extend", extend):
            exact_knapsack(memory, runtime, sum(memory) // 2)
        self.assertGreater(max(most), 10)  # decisions as long as the pieces are many
        most.clear()
        with path("split_late"), mock.patch.object(knapsack, "_extend", extend):
            exact_knapsack(memory, runtime, sum(memory) // 2)
        self.assertLess(max(most), 20)


class TestCaptured(ExactTestCase):
    """Instances of real models, at the budgets for which their optimum was proven."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.optima = json.loads((INSTANCES / "optima.json").read_text())["optima"]
        cls.instances = instances.load_all(INSTANCES)

    def test_every_instance_has_its_optima(self):
        self.same(sorted(self.optima), sorted(case.name for case in self.instances))
        self.assertGreaterEqual(len(self.instances), 6)
        for name, cells in self.optima.items():
            self.same(len(cells), 8, name)

    @parametrize("name", sorted(PATHS))
    def test_bytes(self, name):
        for case in self.instances:
            for budget, (capacity, best, least) in self.optima[case.name].items():
                with path(name):
                    result = exact_knapsack(case.memory, case.runtime, capacity)
                measures = self.check_shape(case.memory, case.runtime, capacity, result)
                self.same(measures, (best, least), case.name, budget)

    def test_normalized(self):
        for case in self.instances:
            for budget, (_, best, least) in self.optima[case.name].items():
                budget = float(budget)
                result = exact_knapsack(case.normalized, case.runtime, budget)
                self.check_shape(case.normalized, case.runtime, budget, result)
                self.same(result[0], best, case.name, budget)
                self.same(case.bytes_of(result[1]), least, case.name, budget)

    def test_all_budgets_at_once(self):
        for case in self.instances:
            cells = list(self.optima[case.name].values())
            capacities = [capacity for capacity, _, _ in cells]
            found = solve_many(case.memory, case.runtime, capacities)
            self.same(found, [BudgetResult(b, m, None) for _, b, m in cells])


numbers = st.one_of(
    st.integers(0, 40),
    st.integers(0, 40).map(lambda q: q / 10),
    st.floats(0, 1e6, allow_subnormal=False),
    st.integers(0, 10**20),
)
item_lists = st.one_of(
    st.lists(st.tuples(numbers, numbers), max_size=14),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30),
    st.lists(
        st.sampled_from([(0.1, 3), (0.2, 6), (0.25, 1), (0.3, 9), (0.7, 20)]),
        max_size=40,
    ),
)
budgets = st.one_of(
    numbers, st.integers(0, 60), st.integers(0, 60).map(lambda q: q / 10)
)
paths = st.sampled_from(sorted(PATHS))


class TestProperties(ExactTestCase):
    def solve(self, items, budget):
        memory, runtime = [m for m, _ in items], [r for _, r in items]
        return exact_knapsack(memory, runtime, budget)

    def measures(self, items, budget):
        _, saved, _ = self.solve(items, budget)
        return tuple(total(column, saved) for column in zip(*items)) or (0, 0)

    @settings(deadline=None, max_examples=150)
    @given(item_lists, budgets, paths)
    def test_feasible_and_complete(self, items, budget, name):
        memory, runtime = [m for m, _ in items], [r for _, r in items]
        with path(name):
            result = self.solve(items, budget)
        if len(items) <= 10:
            self.check_optimal(memory, runtime, budget, result)
        else:
            self.check_shape(memory, runtime, budget, result)

    @settings(deadline=None, max_examples=100)
    @given(item_lists, budgets, st.randoms(use_true_random=False), paths)
    def test_order_of_the_items_does_not_matter(self, items, budget, rng, name):
        memory, runtime = self.measures(items, budget)
        with path(name):
            other, shuffled = self.measures(rng.sample(items, len(items)), budget)
        self.same(runtime, shuffled)
        tolerance = self.tolerance([m for m, _ in items], budget)
        self.assertLessEqual(abs(memory - other), tolerance * Fraction(budget))

    @settings(deadline=None, max_examples=100)
    @given(item_lists, budgets, budgets)
    def test_monotone_in_the_budget(self, items, budget, another):
        lower, higher = sorted([Fraction(budget), Fraction(another)])
        self.assertLessEqual(
            self.measures(items, lower)[1], self.measures(items, higher)[1]
        )

    @settings(deadline=None, max_examples=100)
    @given(item_lists, st.tuples(numbers, numbers), budgets)
    def test_another_item_never_lowers_the_value(self, items, another, budget):
        more = self.measures([*items, another], Fraction(budget))
        self.assertLessEqual(self.measures(items, Fraction(budget))[1], more[1])

    @settings(deadline=None, max_examples=100)
    @given(item_lists, budgets, st.integers(-40, 40), st.integers(-40, 40))
    def test_powers_of_two_change_nothing(self, items, budget, small, large):
        items = [(float(m), float(r)) for m, r in items]
        memory, runtime = self.measures(items, float(budget))
        scaled = [(math.ldexp(m, small), math.ldexp(r, large)) for m, r in items]
        other, scaled_runtime = self.measures(scaled, math.ldexp(budget, small))
        self.same(scaled_runtime, runtime * Fraction(2) ** large)
        difference = abs(other / Fraction(2) ** small - memory)
        self.assertLessEqual(difference, TOLERANCE * Fraction(budget))

    @settings(deadline=None, max_examples=100)
    @given(item_lists, st.integers(0, 60), st.integers(2, 10**30))
    def test_a_common_factor_of_integers_changes_nothing(self, items, budget, factor):
        items = [(round(m), round(r)) for m, r in items]
        scaled = [(m * factor, r * factor) for m, r in items]
        plan = self.solve(items, budget)[1]
        more = self.solve(scaled, budget * factor + factor - 1)[1]
        self.same(
            [total(column, plan) for column in zip(*items)],
            [total(column, more) for column in zip(*items)],
        )

    @settings(deadline=None, max_examples=100)
    @given(item_lists)
    def test_a_budget_of_all_sizes_keeps_all(self, items):
        # Added naively, exactly or with one rounding: sums of floats fit all the same.
        assume(all(isinstance(m, float) for m, _ in items))
        memory = [m for m, _ in items]
        worth = [i for i, (_, r) in enumerate(items) if r > 0]
        for budget in (
            sum(memory),
            math.fsum(memory),
            total(memory, range(len(items))),
        ):
            self.same(self.solve(items, budget)[1], worth, items)

    @settings(deadline=None, max_examples=100)
    @given(item_lists, st.lists(budgets, max_size=6))
    def test_many_budgets_as_each_alone(self, items, several):
        memory, runtime = [m for m, _ in items], [r for _, r in items]
        found = solve_many(memory, runtime, several, plans=True)
        self.same(len(found), len(several))
        for budget, one in zip(several, found):
            kept, saved, _ = self.solve(items, budget)
            self.same(one.saved, saved)
            self.same(one.kept_runtime, kept)
            self.same(float(one.kept_memory), float(total(memory, saved)))


class TestEdges(ExactTestCase):
    def check(self, memory, runtime, budget, saved):
        result = exact_knapsack(memory, runtime, budget)
        self.check_shape(memory, runtime, budget, result)
        self.same(result[1], saved)

    def test_no_items(self):
        self.check([], [], 0.5, [])
        self.check([], [], 0, [])
        self.check([], [], math.inf, [])

    def test_one_item(self):
        self.check([0.5], [1.0], 0.5, [0])
        self.check([0.5], [1.0], 0.4999, [])
        self.check([5], [1], 5, [0])
        self.check([5], [1], 4, [])

    def test_zero_budget(self):
        self.check([0.5, 0.0, 0.25], [1.0, 2.0, 3.0], 0.0, [1])
        self.check([0.5, 0.25], [1.0, 3.0], 0, [])
        self.check([5, 0, 25], [1, 2, 3], 0, [1])
        self.check([0.0, 0.0], [1.0, 2.0], -0.0, [0, 1])

    def test_everything_fits(self):
        self.check([0.5, 0.25, 0.25], [1.0, 2.0, 3.0], 1.0, [0, 1, 2])
        self.check([2, 1, 1], [1, 2, 3], 4, [0, 1, 2])
        self.check([2, 1, 1], [1, 2, 3], 10**400, [0, 1, 2])

    def test_infinite_budget_keeps_what_is_worth_keeping(self):
        self.check([1e9, 0.5, 1e300], [1.0, 0.0, 3.0], math.inf, [0, 2])
        self.check([10**400, 3], [-1, 10**400], math.inf, [1])
        self.check([Fraction(1, 3), 3], [1, 2], np.float32("inf"), [0, 1])

    def test_zero_memory(self):
        self.check([0.0, 0.0, 0.3], [1.0, 0.0, 5.0], 0.2, [0])
        self.check([0, 7, 0, 7, 7], [1, 9, 0, 8, 9], 14, [0, 1, 4])

    def test_zero_and_negative_runtime(self):
        self.check([0.1, 0.1, 0.1], [0.0, -1.0, 2.0], 1.0, [2])
        self.check([0.1, 0.0], [0.0, -1.0], 1.0, [])

    def test_item_larger_than_the_budget(self):
        self.check([2.0, 0.3, 0.3], [100.0, 1.0, 1.0], 0.5, [1])
        # Were it the split class, its efficiency would hide all others.
        self.check([10**12, 7, 6, 5], [10**30, 7, 6, 5], 11, [2, 3])

    def test_equal_items_save_the_lowest_indices(self):
        self.check([0.1] * 7, [3.0] * 7, 0.35, [0, 1, 2])
        self.check([5, 4, 5, 4, 5, 4], [6, 4, 6, 4, 6, 4], 14, [0, 1, 2])
        # 2 and 2.0 are the same number, and so are these the same items.
        self.check([2.0, 2, Fraction(2)], [3, 3.0, np.int64(3)], 4, [0, 1])

    def test_least_memory_of_equal_runtime(self):
        # 5 is kept by item 0, by items 1 and 3, and, in less memory, by items 2 and 3.
        self.check([0.5, 0.4, 0.3, 0.1], [5.0, 3.0, 3.0, 2.0], 0.5, [2, 3])
        self.check([5, 4, 3, 1], [5, 3, 3, 2], 5, [2, 3])
        self.check([10**18, 10**18 - 1], [7, 7], 10**18, [1])

    def test_sizes_that_fill_the_budget_exactly(self):
        # In floats 0.1 + 0.2 > 0.3, and ten times 0.1 are more than 1.
        self.check([0.1, 0.2], [1.0, 1.0], 0.3, [0, 1])
        self.check([0.1] * 11, [1] * 11, 1.0, list(range(10)))
        self.check([0.7, 0.1, 0.3], [5, 1, 3], 0.8, [0, 1])
        self.check([3, 4, 5], [3, 4, 5], 12, [0, 1, 2])

    def test_the_tolerance_ends_at_its_bound(self):
        self.check([1 + 0.9e-12], [1], 1.0, [0])
        self.check([1 + 1.1e-12], [1], 1.0, [])
        self.check([0.5, 0.5 + 2e-12], [1, 1], 1.0, [0])
        self.check([Fraction(10**12 + 2, 10**12)], [1], 1, [])

    def test_whole_numbers_have_no_tolerance(self):
        self.check([10**18, 1], [10**18, 1], 10**18, [0])
        self.check([10**18 + 1], [1], 10**18, [])
        self.check([2**80, 2**80 + 1], [1, 2], 2**81, [1])
        self.check([2**80, 2**80 + 1], [1, 2], 2**81 + 1, [0, 1])

    def test_whole_runtimes_beyond_float64_are_told_apart(self):
        self.check([0.5, 0.5], [2**60, 2**60 + 1], 0.5, [1])
        self.check([5, 5, 5], [10**18, 10**18 + 1, 10**18 + 2], 10, [1, 2])
        self.check([5, 3, 3], [2**64 + 2, 2**63 + 1, 2**63], 6, [0])
        self.check([5, 3, 3], [2**64 + 1, 2**63 + 1, 2**63 + 1], 6, [1, 2])

    def test_capacities_between_two_floats(self):
        # As a float the budget is 2**60, which both would fill.
        half = 2**59
        self.check([half, half, 1], [half, half, 1], 2**60 - 1, [0, 2])
        self.check([half, half, 1], [half, half, 1], 2**60, [0, 1])

    def test_beyond_the_range_of_floats(self):
        big = 10**400
        self.check([big, 1, big], [big, 2, big + 1], big, [2])
        self.check([big, 1, big], [big, 2, big + 1], big + 1, [1, 2])
        self.check([big, 1, big], [big, 2, big + 1], 2 * big, [0, 2])
        self.check([big, 1], [1, 1], 1e308, [1])
        self.check([0.5, 0.5, 0.25], [big, big + 1, 1], 0.75, [1, 2])

    def test_runtimes_and_sizes_whose_sums_overflow(self):
        for runtime in ([1e308, 1.5e308, 1.2e308], [1.0, 1.5, 1.2]):
            for memory, budget in (([0.3, 0.4, 0.3], 0.6), ([1e308] * 3, 1.7e308)):
                _, saved, _ = exact_knapsack(memory, runtime, budget)
                self.same(saved, [0, 2] if budget == 0.6 else [1])
        kept, saved, _ = exact_knapsack([1e308] * 3, [1e308] * 3, math.inf)
        self.same((kept, saved), (math.inf, [0, 1, 2]))
        [one] = solve_many([1e308, 1e308], [1, 2], [math.inf])
        self.same(one, (3, math.inf, None))

    def test_floats_give_floats_and_ints_give_ints(self):
        for memory in ([1, 2, 4], [1.0, 2.0, 4.0], [1, 2.0, 4], [1, 2, 1e308]):
            for runtime in ([3, 2, 1], [3.0, 2.0, 1.0], [3, 2.0, 1], [3, 2, -1.0]):
                for budget in (0, 3, 3.5, math.inf):
                    kept, _, _ = exact_knapsack(memory, runtime, budget)
                    [one] = solve_many(memory, runtime, [budget])
                    self.same(
                        (one.kept_runtime, type(one.kept_runtime)), (kept, type(kept))
                    )
                    whole_costs = all(type(cost) is int for cost in runtime)
                    self.assertIs(type(kept), int if whole_costs else float)
                    whole_sizes = all(type(size) is int for size in memory)
                    self.assertIs(type(one.kept_memory), int if whole_sizes else float)

    def test_denormals(self):
        tiny = 5e-324
        self.check([tiny, 2 * tiny], [1, 1], tiny, [0])
        self.check([tiny, 2 * tiny], [tiny, 3 * tiny], 2 * tiny, [1])
        self.check([tiny, 2 * tiny], [tiny, 3 * tiny], 3 * tiny, [0, 1])
        self.check([tiny, 1e308, 1.0], [1e308, tiny, 1.0], 1.0, [0, 2])
        self.check([0.5, 0.25, 0.25], [1.0, tiny, 1.0], 0.75, [0, 2])

    def test_huge_runtime_beside_one(self):
        self.check([0.4, 0.3, 0.3, 0.2], [1e18, 1.0, 2.0, 1.0], 0.7, [0, 2])
        self.check([0.4, 0.3, 0.3, 0.2], [1e18, 1.0, 1.0, 1.5], 0.6, [0, 3])
        self.check([5, 2, 1, 9], [10**18, 1, 2, 10**18], 6, [0, 2])
        self.check([5, 2, 1, 9], [10**18, 1, 2, 10**18 + 4], 9, [3])
        self.check([5, 2, 1, 9], [10**18, 1, 2, 10**18 + 3], 9, [0, 1, 2])

    def test_numbers_of_other_libraries(self):
        memory = np.array([0.5, 0.25, 0.25, 0.75])
        runtime = np.array([4, 3, 2, 6])
        for budget in (0.75, np.float32(0.75), Fraction(3, 4)):
            kept, saved, _ = exact_knapsack(memory, runtime, budget)
            self.same((kept, saved), (7, [0, 1]))
            self.assertIs(type(kept), int)
            self.assertTrue(all(type(i) is int for i in saved))
        sizes = [np.uint64(2**64 - 1), np.uint64(1)]
        self.same(exact_knapsack(sizes, [np.int8(5), 3], 2**64)[1], [0, 1])
        self.same(exact_knapsack(sizes, [np.int8(5), 3], 2**64 - 1)[1], [0])
        thirds = [Fraction(1, 3)] * 4
        self.same(exact_knapsack(thirds, [1, 2, 3, 2], 1)[1], [1, 2, 3])
        self.same(exact_knapsack([True, 2], [True, 5], True)[1], [0])

    def test_arguments_are_left_alone(self):
        memory, runtime = [3, 1, 2, 0], [5, 4, 3, 0]
        exact_knapsack(memory, runtime, 3)
        self.same((memory, runtime), ([3, 1, 2, 0], [5, 4, 3, 0]))
        self.same(exact_knapsack(tuple(memory), tuple(runtime), 3)[1], [1, 2])

    @parametrize(
        "case",
        [
            ([1], [1, 2], 1, "memory has 1 items, but runtime has 2"),
            ([0.1, math.nan], [1.0, 2.0], 0.5, "memory[1] must be finite, got nan"),
            ([0, math.inf], [1.0, 2.0], 0.5, "memory[1] must be finite, got inf"),
            ([-math.inf], [0.0], 0.5, "memory[0] must be finite, got -inf"),
            ([0.1, 2], [1, math.nan], 5, "runtime[1] must be finite, got nan"),
            ([0.1], [math.inf], math.inf, "runtime[0] must be finite, got inf"),
            ([9.0, 9.0], [1.0, -math.inf], 1, "runtime[1] must be finite, got -inf"),
            ([1, 1, -5], [1, 1, 0], 1, "memory[2] must be >= 0, got -5"),
            ([0.1, -0.5], [1.0, 2.0], 0.5, "memory[1] must be >= 0, got -0.5"),
            (
                [Fraction(-1, 3)],
                [1],
                1,
                "memory[0] must be >= 0, got Fraction(-1, 3)",
            ),
            ([-(10**400)], [1], 1, f"memory[0] must be >= 0, got -1{'0' * 400}"),
            ([0, "7"], [1, 2], 1, "memory[1] must be a number, got '7'"),
            ([0, 1], [1, None], 1, "runtime[1] must be a number, got None"),
            ([0, 1], [1j, 1], 1, "runtime[0] must be a number, got 1j"),
            ([Decimal(3)], [1], 1, "memory[0] must be a number, got Decimal('3')"),
            (
                [1.0, torch.tensor(2.0)],
                [1, 1],
                1,
                "memory[1] must be a number, got tensor(2.)",
            ),
            (
                [np.float64("nan")],
                [1],
                1,
                "memory[0] must be finite, got np.float64(nan)",
            ),
            ([1], [1], math.nan, "BUDGET must be >= 0, got nan"),
            ([1], [1], -0.1, "BUDGET must be >= 0, got -0.1"),
            ([1], [1], -1, "BUDGET must be >= 0, got -1"),
            ([], [], -math.inf, "BUDGET must be >= 0, got -inf"),
            ([], [], "all", "BUDGET must be a number, got 'all'"),
            ([1], [1], None, "BUDGET must be a number, got None"),
        ],
        name_fn=lambda case: re.sub(r"\W+", "_", case[3])[:40].strip("_"),
    )
    def test_bad_arguments(self, case):
        memory, runtime, budget, message = case
        with self.assertRaises(ValueError) as caught:
            exact_knapsack(memory, runtime, budget)
        self.same(str(caught.exception), message.replace("BUDGET", "max_memory"))
        with self.assertRaises(ValueError) as caught:
            solve_many(memory, runtime, [0.5, budget])
        self.same(str(caught.exception), message.replace("BUDGET", "budgets[1]"))

    def test_what_cannot_be_hashed_is_no_number(self):
        for memory, runtime, message in (
            ([1, [2]], [1, 1], "memory[1] must be a number, got [2]"),
            ([[2], [2]], [1, 1], "memory[0] must be a number, got [2]"),
            ([1, 2], [1, [1]], "runtime[1] must be a number, got [1]"),
            ([1, 1], [1, [1]], "runtime[1] must be a number, got [1]"),
        ):
            with self.assertRaises(ValueError) as caught:
                exact_knapsack(memory, runtime, 1)
            self.same(str(caught.exception), message)


class TestManyBudgets(ExactTestCase):
    def test_what_each_budget_keeps(self):
        memory, runtime = [4, 2, 2, 0], [4, 3, 2, 1]
        budgets = [7.99, 0, 1.5, 2, 4, 6, 8, 70, math.inf]
        found = solve_many(memory, runtime, budgets, plans=True)
        self.same(
            [tuple(result) for result in found],
            [
                (8, 6, [0, 1, 3]),
                (1, 0, [3]),
                (1, 0, [3]),
                (4, 2, [1, 3]),
                (6, 4, [1, 2, 3]),
                (8, 6, [0, 1, 3]),
                (10, 8, [0, 1, 2, 3]),
                (10, 8, [0, 1, 2, 3]),
                (10, 8, [0, 1, 2, 3]),
            ],
        )
        without = solve_many(memory, runtime, budgets)
        self.same(without, [result._replace(saved=None) for result in found])

    def test_no_budgets_or_no_items(self):
        self.same(solve_many([1.0], [1.0], []), [])
        self.same(solve_many([], [], [0, 1.5], plans=True), [(0, 0, [])] * 2)
        self.same(solve_many([3], [-1], [5], plans=True), [(0, 0, [])])

    def test_a_hundred_budgets_in_any_order(self):
        rng = random.Random(100)
        for family in (layers, normalized, spread_floats):
            memory, runtime, _ = family(rng, 120)
            budgets = [sum(memory) * i / 99 for i in range(100)]
            rng.shuffle(budgets)
            found = solve_many(memory, runtime, budgets, plans=True)
            for budget, one in zip(budgets, found):
                kept, saved, _ = result = exact_knapsack(memory, runtime, budget)
                _, used = self.check_shape(memory, runtime, budget, result)
                self.same((one.saved, one.kept_runtime), (saved, kept))
                self.same(float(one.kept_memory), float(used))
            again = solve_many(memory, runtime, sorted(budgets), plans=True)
            by_budget = dict(zip(budgets, found))
            self.same(again, [by_budget[budget] for budget in sorted(budgets)])

    def test_sweeping_code_finds_it(self):
        self.assertIs(exact_knapsack.solve_many, solve_many)


def spread_floats(rng, n):
    memory = [rng.random() for _ in range(n)]
    return memory, [rng.random() for _ in range(n)], sum(memory) / 2


# Pisinger (2005): families made to be hard, at coefficients up to R.
def hard_families(rng, n, largest):
    def sizes():
        return [rng.randint(1, largest) for _ in range(n)]

    step = largest // 10
    memory = sizes()
    yield "uncorrelated", memory, sizes()
    near = [max(1, m + rng.randint(-step, step)) for m in memory]
    yield "weakly correlated", memory, near
    yield "strongly correlated", memory, [m + step for m in memory]
    yield "inverse strongly correlated", [m + step for m in memory], memory
    noise = max(1, largest // 500)
    almost = [m + step + rng.randint(-noise, noise) for m in memory]
    yield "almost strongly correlated", memory, almost
    yield "subset sum", memory, memory
    alike = [largest + rng.randint(0, 100) for _ in range(n)]
    yield "similar sizes", alike, [rng.randint(1, 1000) for _ in alike]
    base = [(m, m + step) for m in memory[:2]]
    spanner = [(s, rng.randint(1, 10)) for s in (rng.choice(base) for _ in range(n))]
    yield "spanner", [s[0] * k for s, k in spanner], [s[1] * k for s, k in spanner]
    multiple = [m + (3 * step if m % 6 == 0 else 2 * step) for m in memory]
    yield "multiple strongly correlated", memory, multiple
    yield "profit ceiling", memory, [3 * -(-m // 3) for m in memory]
    arc = [math.isqrt(4 * largest**2 - (m - 2 * largest) ** 2) * 2 // 3 for m in memory]
    yield "circle", memory, [max(1, r) for r in arc]


def relaxed_best(memory, runtime, capacity):
    """Dantzig's bound: the last item may be cut."""
    room, value = Fraction(capacity), Fraction(0)
    items = [(Fraction(r, m), m) for m, r in zip(memory, runtime)]
    for efficiency, size in sorted(items, reverse=True):
        taken = min(room, size)
        value += efficiency * taken
        room -= taken
    return value


class TestFallback(ExactTestCase):
    def solve(self, memory, runtime, capacity, states):
        """Solve with a limit on the states; returns the plan, the gap and the states."""
        with mock.patch.object(knapsack, "MAX_STATES", states):
            with self.assertLogs(knapsack.log, "WARNING") as logs:
                knapsack.log.warning("at least one record")
                result = exact_knapsack(memory, runtime, capacity)
        self.check_shape(memory, runtime, capacity, result)
        self.assertLessEqual(len(logs.records), 2)
        if len(logs.records) == 1:
            return result, None, None
        made, gap = GAP.search(logs.records[1].getMessage()).groups()
        self.assertGreater(int(made), states)
        return result, float(gap), int(made)

    @parametrize("states", [0, 20, 200])
    @parametrize("name", ["as_is", "two_frontiers", "split"])
    def test_the_gap_is_proven(self, states, name):
        rng = random.Random(states)
        warned = short = 0
        for n in (12, 25, 50, 100):
            for _, memory, runtime in hard_families(rng, n, 300):
                capacity = sum(memory) * rng.randint(2, 7) // 10
                with path(name):
                    result, gap, _ = self.solve(memory, runtime, capacity, states)
                best, least = table_best(memory, runtime, capacity)
                if gap is None:
                    self.same(result[0], best)
                    self.same(total(memory, result[1]), least)
                    continue
                warned += 1
                short += result[0] < best
                self.assertGreater(gap, 0)  # or it is proven, and no warning is due
                self.assertLessEqual(best - result[0], gap * best)
                relaxed = relaxed_best(memory, runtime, capacity)
                self.assertLessEqual(float(gap), 1 - result[0] / relaxed + 1e-3)
        self.assertGreater(warned, 10)
        self.assertGreater(short, 0)

    def test_floats(self):
        rng = random.Random(3)
        warned = 0
        for _ in range(60):
            n = rng.randint(5, 13)
            memory = [rng.randint(1, 1000) / 999 for _ in range(n)]
            runtime = [m + 0.1 for m in memory]
            budget = math.fsum(memory) / 2
            result, gap, _ = self.solve(memory, runtime, budget, 3)
            if gap is None:
                continue
            warned += 1
            best = int(AllSubsets(memory, runtime).best(Fraction(budget)))
            best = Fraction(best, whole(runtime)[1])
            kept = total(runtime, result[1])
            self.assertLessEqual(best - kept, gap * best + best * TOLERANCE)
        self.assertGreater(warned, 5)

    @parametrize("largest", [10**3, 10**6, 10**9])
    def test_hard_families_end_within_the_limit(self, largest):
        rng = random.Random(largest)
        limit = 3000
        warned = 0
        for n in (50, 200):
            for family, memory, runtime in hard_families(rng, n, largest):
                capacity = sum(memory) // 2
                result, gap, made = self.solve(memory, runtime, capacity, limit)
                if gap is None:
                    continue
                warned += 1
                # One frontier at most is finished beyond the limit.
                self.assertLessEqual(made, 3 * limit)
                relaxed = relaxed_best(memory, runtime, capacity)
                self.assertLessEqual(result[0], relaxed)
                self.assertLessEqual(1 - result[0] / relaxed, gap + 1e-12, family)
                self.assertLess(gap, 0.05, family)
        self.assertGreater(warned, 2)

    @parametrize("name", ["by_class", "two_frontiers"])
    def test_many_copies_end_within_the_limit(self, name):
        # All the copies of a class come at once, and none loses much.
        rng = random.Random(12)
        limit = 2000
        warned = 0
        for _ in range(20):
            kinds = [rng.randint(10**9, 2 * 10**9) for _ in range(6)]
            memory = [size for size in kinds for _ in range(500)]
            runtime = [10**9 * size + rng.randint(0, 10**6) for size in kinds]
            runtime = [cost for cost in runtime for _ in range(500)]
            with path(name):
                _, _, made = self.solve(memory, runtime, sum(memory) // 2, limit)
            if made is not None:
                warned += 1
                self.assertLessEqual(made, 3 * limit)
        self.assertGreater(warned, 5)

    def test_equal_efficiencies_of_many_classes_are_proven(self):
        # No class loses anything: it takes pieces from both sides of the split.
        rng = random.Random(13)
        with mock.patch.object(knapsack, "MAX_STATES", 60_000):
            with self.assertNoLogs(knapsack.log):
                for n in (100, 300, 1000):
                    memory = [rng.randint(1, 10**6) for _ in range(n)]
                    runtime = [3 * size for size in memory]
                    capacity = sum(memory) * 2 // 5
                    result = exact_knapsack(memory, runtime, capacity)
                    measures = self.check_shape(memory, runtime, capacity, result)
                    self.same(measures, (3 * capacity, capacity))

    def test_the_quantized_plan_competes(self):
        # It may only help, and on some instances it does.
        rng = random.Random(8)
        helped = 0
        for n in (40, 80, 120):
            for _, memory, runtime in hard_families(rng, n, 10**4):
                capacity = sum(memory) // 3
                with_it, _, _ = self.solve(memory, runtime, capacity, 10)
                with mock.patch.object(
                    knapsack_hirschberg, "solve_quantized", return_value=[]
                ):
                    without, _, _ = self.solve(memory, runtime, capacity, 10)
                self.assertGreaterEqual(with_it[0], without[0])
                helped += with_it[0] > without[0]
        self.assertGreater(helped, 3)

    def test_integers_beyond_the_range_of_floats(self):
        rng = random.Random(4)
        memory = [
            rng.randint(1, 10**9) * 10**310 + rng.randint(0, 9) for _ in range(40)
        ]
        runtime = [size + 10**317 for size in memory]
        self.solve(memory, runtime, sum(memory) // 2, 50)
        self.solve(memory, memory, sum(memory) // 2, 50)

    def test_a_plan_that_moves_nothing_counts(self):
        # Equally efficient as floats; the lighter item is the plan, and it is proven.
        memory = [2**55 - 2, 2**55 + 1]
        with mock.patch.object(knapsack, "MAX_STATES", 0):
            with self.assertNoLogs(knapsack.log):
                _, saved, _ = exact_knapsack(memory, [1, 1], 60371790338999139)
        self.same(saved, [0])

    def test_the_same_in_every_mode(self):
        rng = random.Random(6)
        memory = [rng.randint(1, 10**6) for _ in range(60)]
        runtime = [size + 10**5 for size in memory]
        plain_result = self.solve(memory, runtime, sum(memory) // 2, 50)
        with FakeTensorMode(), torch.device("meta"):
            self.same(self.solve(memory, runtime, sum(memory) // 2, 50), plain_result)

    def test_no_warning_without_need(self):
        rng = random.Random(9)
        with self.assertNoLogs(knapsack.log):
            for family in (plain, layers, normalized):
                exact_knapsack(*family(rng, 100))


STANDALONE = """
    import importlib.util, random, sys
    spec = importlib.util.spec_from_file_location("knapsack_exact", sys.argv[1])
    knapsack = importlib.util.module_from_spec(spec)
    sys.modules["knapsack_exact"] = knapsack
    spec.loader.exec_module(knapsack)
"""


def run_standalone(script, **environment):
    """Run a script beside the module alone: it needs no torch unless it falls back."""
    code = textwrap.dedent(STANDALONE) + textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, "-c", code, knapsack.__file__],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"PATH": "", **environment},
    )
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


class TestProcess(ExactTestCase):
    def test_same_plans_under_every_hash_seed(self):
        script = """
            rng = random.Random(0)
            results = []
            for n in (5, 30, 100, 300):
                for largest in (3, 40, 10**6):
                    memory = [rng.randint(0, largest) for _ in range(n)]
                    runtime = [rng.randint(0, largest) for _ in range(n)]
                    budget = sum(memory) // 3
                    results.append(knapsack.exact_knapsack(memory, runtime, budget))
                    span = sum(memory) + 1
                    memory = [size / span for size in memory]
                    results.append(knapsack.exact_knapsack(memory, runtime, 0.3))
                    equal = [max(1, size // 10**5) for size in runtime]
                    results.append(knapsack.exact_knapsack(equal, equal, n // 2))
                    results.append(
                        knapsack.solve_many(memory, runtime, [0.5, 0.1], plans=True)
                    )
            assert "torch" not in sys.modules
            print(results)
        """
        here = {"knapsack": knapsack, "random": random, "sys": mock.Mock(modules={})}
        printed = []
        here["print"] = printed.append
        exec(textwrap.dedent(script), here)
        for seed in ("0", "1", "4242"):
            self.same(
                run_standalone(script, PYTHONHASHSEED=seed).strip(), str(printed[0])
            )

    @unittest.skipUnless(sys.platform == "linux", "reads /proc/self/status")
    def test_sixteen_megabytes_at_the_scale_of_the_paper(self):
        # n = 2,000 and W = 5e8: the rows of a table alone would take gigabytes.
        script = """
            def kib(field):
                with open("/proc/self/status") as status:
                    line = next(line for line in status if line.startswith(field))
                return int(line.split()[1])

            rng = random.Random(1)
            memory = [rng.randint(1, 10**6) for _ in range(2000)]
            runtime = [rng.randint(1, 10**6) for _ in range(2000)]
            idle = kib("VmRSS")
            for part in (10, 4, 2):
                kept, saved, _ = knapsack.exact_knapsack(
                    memory, runtime, sum(memory) // part
                )
                assert kept == sum(runtime[i] for i in saved)
            print(kib("VmHWM") - idle)
        """
        megabytes = int(run_standalone(script)) / 1024
        self.assertLess(megabytes, 16)
        self.assertGreater(megabytes, 0)

    @unittest.skipUnless(sys.platform == "linux", "reads /proc/self/status")
    def test_decisions_take_a_fixed_allowance(self):
        # A frontier of 2**17 states is stopped; its decisions are not what grows.
        script = """
            import tracemalloc

            rng = random.Random(1)
            memory = [rng.randint(10**12, 2 * 10**12) for _ in range(400)]
            runtime = [size + 10**11 for size in memory]
            knapsack._Core._quantized = lambda *_: None
            knapsack.MAX_STATES = 1 << 16
            knapsack.DECISION_BITS = 1 << 16
            knapsack.log.disabled = True
            tracemalloc.start()
            knapsack.exact_knapsack(memory, runtime, sum(memory) // 2)
            print(tracemalloc.get_traced_memory()[1])
        """
        self.assertLess(int(run_standalone(script)), 32 * 2**20)

    def test_a_hundred_thousand_items(self):
        rng = random.Random(100_000)
        memory = [rng.random() for _ in range(100_000)]
        runtime = [rng.randint(1, 10**9) for _ in memory]
        budget = sum(memory) / 2
        kept, saved, recomputable = exact_knapsack(memory, runtime, budget)
        self.assertLessEqual(math.fsum(memory[i] for i in saved), budget * (1 + 1e-12))
        self.same(kept, sum(runtime[i] for i in saved))
        self.same(sorted(saved + recomputable), list(range(100_000)))
        # Between the bound and what filling by efficiency alone keeps.
        order = sorted(range(100_000), key=lambda i: runtime[i] / memory[i])
        room, filled = budget, 0
        while memory[order[-1]] <= room:
            i = order.pop()
            room -= memory[i]
            filled += runtime[i]
        cut = runtime[order[-1]] * room / memory[order[-1]]
        self.assertTrue(filled <= kept <= filled + cut + 1, (filled, kept, cut))


class TestWiring(ExactTestCase):
    def test_the_config_value_means_this_module(self):
        from torch._functorch import config, partitioners

        self.assertIs(partitioners.exact_knapsack, exact_knapsack)
        # "dp" would count 0.33336 as a third and save one item only.
        memory, runtime = [0.33336, 0.33331, 0.33333], [10**9, 1, 2]
        with config.patch(activation_memory_budget_solver="exact"):
            result = partitioners._optimize_runtime_with_given_memory(
                None, memory, runtime, 0.66669, None, []
            )
        self.same(result, (10**9 + 2, [0, 2], [1]))


instantiate_parametrized_tests(TestOptimal)
instantiate_parametrized_tests(TestCaptured)
instantiate_parametrized_tests(TestEdges)
instantiate_parametrized_tests(TestFallback)


if __name__ == "__main__":
    run_tests()
