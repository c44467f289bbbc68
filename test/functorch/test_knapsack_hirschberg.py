# Owner(s): ["module: functorch"]
"""Tests of knapsack_hirschberg.py: optimal, within the budget, ties, memory, modes.

Every expected plan comes from outside the module: enumeration, a plain table in NumPy,
scipy's milp with no gap, or values published with upstream issue 197871.
"""

from __future__ import annotations

import contextlib
import functools
import math
import random
import subprocess
import sys
import textwrap
import unittest
from collections import Counter
from pathlib import Path
from unittest import mock

import numpy as np
import test_ac_knapsack_budget as regression
import torch
import torch._functorch._activation_checkpointing.knapsack_hirschberg as knapsack
from hypothesis import given, settings, strategies as st
from torch._functorch._activation_checkpointing.knapsack_hirschberg import (
    dp_knapsack_sliding_hirschberg,
    kept_runtime_profile,
    solve_quantized,
)
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.common_utils import (
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
    TestCase,
)
from torch.utils._device import DeviceContext
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode


sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from overlaykit.pristine import load_upstream


SCALE = 10_000


@functools.cache
def subsets(n):
    """Every subset of n items as a row of 0 and 1; those with low indices first."""
    codes = np.arange(2**n)[::-1, None]
    return (codes >> np.arange(n)[::-1]) & 1


def enumerate_best(weights, values, capacity):
    """The plan of most value, then least weight, then lowest indices: try them all."""
    rows = subsets(len(weights))
    worth = np.array([v > 0 for v in values], dtype=bool)
    total_weight = rows @ np.array(weights, dtype=np.int64)
    total_value = rows @ np.array(values, dtype=np.int64)
    allowed = (total_weight <= capacity) & ~(rows[:, ~worth].any(axis=1))
    best_value = total_value[allowed].max()
    allowed &= total_value == best_value
    allowed &= total_weight == total_weight[allowed].min()
    return np.flatnonzero(rows[np.flatnonzero(allowed)[0]]).tolist()


def table_best(weights, values, capacity):
    """The same plan from the textbook's full table of whole numbers, items from last."""
    table = np.zeros((len(weights) + 1, capacity + 1), dtype=np.int64)
    for i in reversed(range(len(weights))):
        table[i] = table[i + 1]
        if values[i] > 0 and weights[i] <= capacity:
            with_item = table[i + 1, : capacity + 1 - weights[i]] + values[i]
            table[i, weights[i] :] = np.maximum(table[i, weights[i] :], with_item)
    room = int(np.argmax(table[0] == table[0, capacity]))
    plan = []
    for i, (weight, value) in enumerate(zip(weights, values)):
        fits = value > 0 and weight <= room
        if fits and table[i + 1, room - weight] + value == table[i, room]:
            plan.append(i)
            room -= weight
    return plan


def total(numbers, plan):
    return sum(numbers[i] for i in plan)


def random_instance(rng, n, *, largest=200):
    """Whole weights and values, with many ties, zeros, equal items, some huge values."""
    scale = rng.choice([1, 1, 1, 7])  # sometimes a common divisor
    weights = [
        rng.randint(0, rng.choice([3, largest // 5, largest])) * scale for _ in range(n)
    ]
    values = [rng.randint(-1, rng.choice([2, 30, 1000])) for _ in range(n)]
    if rng.random() < 0.2:  # beyond 2**53, where float64 skips whole numbers
        values = [v + 2**55 if v > 0 and rng.random() < 0.5 else v for v in values]
    capacity = rng.randint(0, sum(weights) + 2)
    return weights, values, capacity


@contextlib.contextmanager
def small_steps(block):
    """No table beyond a row's bytes, so that segments are split, and short blocks."""
    with (
        mock.patch.object(knapsack, "_TABLE_BYTES", 0),
        mock.patch.object(knapsack, "_BLOCK", block),
        mock.patch.object(knapsack, "_meet", wraps=knapsack._meet) as meet,
    ):
        yield meet


class TestIssue197871(regression.TestSlidingKnapsackBudget):
    """The public reproducers, put to the new module."""

    solver = staticmethod(dp_knapsack_sliding_hirschberg)

    def test_weights_as_given(self):
        # The reproducers' own numbers are whole: 10,000 quanta each.
        for weights, values, capacity, best in (
            ([25, 5, 22, 26], [25, 2, 27, 28], 72, 57),
            ([2, 19, 25, 2, 14, 3, 9, 7], [47, 21, 12, 8, 12, 45, 24, 2], 29, 128),
        ):
            kept, saved, _ = self.solver(weights, values, capacity)
            self.assertEqual(kept, best)
            self.assertLessEqual(total(weights, saved), capacity)


class TestRegressionTestCanFail(TestCase):
    def test_every_case_fails_on_the_code_as_shipped(self):
        shipped = load_upstream("knapsack").dp_knapsack_sliding_hirschberg

        class OnShipped(regression.TestSlidingKnapsackBudget):
            solver = staticmethod(shipped)

        suite = unittest.defaultTestLoader.loadTestsFromTestCase(OnShipped)
        result = unittest.TestResult()
        suite.run(result)
        self.assertGreater(result.testsRun, 0)
        self.assertEqual(result.errors, [])
        self.assertEqual(len(result.failures), result.testsRun)

    def test_the_code_as_shipped_overspends(self):
        shipped = load_upstream("knapsack").dp_knapsack_sliding_hirschberg
        _, saved, _ = shipped([0.0001] * 3, [1.0] * 3, 0.0001)
        self.assertEqual(len(saved), 2)
        _, saved, _ = dp_knapsack_sliding_hirschberg([0.0001] * 3, [1.0] * 3, 0.0001)
        self.assertEqual(saved, [0])


class TestOptimal(TestCase):
    @parametrize("seed", range(5))
    def test_random_against_enumeration(self, seed):
        rng = random.Random(seed)
        for _ in range(500):
            weights, values, capacity = random_instance(rng, rng.randint(0, 14))
            plan = enumerate_best(weights, values, capacity)
            self.assertEqual(solve_quantized(weights, values, capacity), plan)

            memory = [weight / SCALE for weight in weights]
            result = dp_knapsack_sliding_hirschberg(memory, values, capacity / SCALE)
            recomputable = sorted(set(range(len(weights))) - set(plan), reverse=True)
            self.assertEqual(result, (total(values, plan), plan, recomputable))

    @parametrize("block", [1, 7, 50, 32_768])
    def test_splits_against_the_full_table(self, block):
        rng = random.Random(block)
        splits = 0
        for _ in range(75):
            weights, values, capacity = random_instance(
                rng, rng.randint(20, 80), largest=40
            )
            plan = table_best(weights, values, capacity)
            self.assertEqual(solve_quantized(weights, values, capacity), plan)
            with small_steps(block) as meet:
                split = solve_quantized(weights, values, capacity)
            splits += meet.call_count
            self.assertEqual(total(values, split), total(values, plan))
            self.assertEqual(total(weights, split), total(weights, plan))
            self.check_lowest_of_equal_items(split, weights, values)
        self.assertGreater(splits, 30)

    @parametrize("split", [False, True])
    def test_lowest_of_equal_items_where_float_totals_are_rounded(self, split):
        rng = random.Random(3)
        for _ in range(50):
            runtimes = (rng.random(), rng.randint(1, 9) / 10, 1e15 + 0.1, 1.1)
            classes = [(rng.randint(1, 12), runtime) for runtime in runtimes]
            items = [rng.choice(classes) for _ in range(rng.randint(20, 50))]
            weights, values = [w for w, _ in items], [v for _, v in items]
            capacity = rng.randint(1, sum(weights))
            with small_steps(100) if split else contextlib.nullcontext():
                plan = solve_quantized(weights, values, capacity)
            self.check_lowest_of_equal_items(plan, weights, values)

    def check_lowest_of_equal_items(self, plan, weights, values):
        items = list(zip(weights, values))
        counts = Counter(items[i] for i in plan)
        for item, count in counts.items():
            lowest = [i for i, other in enumerate(items) if other == item][:count]
            self.assertEqual([i for i in plan if items[i] == item], lowest)

    @parametrize("budget", [0.05, 0.5, 0.9])
    def test_five_thousand_items_against_the_last_row(self, budget):
        rng = random.Random(5000)
        sizes = [rng.random() for _ in range(5000)]
        memory = [size / sum(sizes) for size in sizes]
        values = [rng.randint(1, 10**9) for _ in memory]
        weights = [round(m * SCALE) for m in memory]
        capacity = round(budget * SCALE)
        row = np.zeros(capacity + 1, dtype=np.int64)
        for weight, value in zip(weights, values):
            shifted = np.full_like(row, -1)
            shifted[weight:] = row[: capacity + 1 - weight] + value
            row = np.where(shifted > row, shifted, row)
        kept, saved, recomputable = dp_knapsack_sliding_hirschberg(
            memory, values, budget
        )
        self.assertEqual(kept, int(row[-1]))
        self.assertEqual(total(values, saved), kept)
        self.assertLessEqual(total(weights, saved), capacity)
        self.assertEqual(sorted(saved + recomputable), list(range(5000)))

    def test_random_floats_against_milp(self):
        from scipy.optimize import Bounds, LinearConstraint, milp

        rng = random.Random(7)
        for n in (30, 100, 300):
            memory = [rng.random() / n for _ in range(n)]
            runtime = [rng.random() for _ in range(n)]
            weights = np.array([round(m * SCALE) for m in memory])
            budget = 0.4 * sum(memory)
            capacity = round(budget * SCALE)
            found = milp(
                -np.array(runtime),
                constraints=LinearConstraint(weights, ub=capacity),
                integrality=np.ones(n),
                bounds=Bounds(0, 1),
                options={"mip_rel_gap": 0},
            )
            kept, saved, _ = dp_knapsack_sliding_hirschberg(memory, runtime, budget)
            self.assertEqual(kept, -found.fun, rtol=1e-12, atol=0)
            self.assertLessEqual(int(weights[saved].sum()), capacity)


def quanta(largest):
    return st.integers(0, largest).map(lambda q: q / SCALE)


runtimes = st.one_of(
    st.integers(0, 50).map(float),
    st.floats(0, 1e12, allow_subnormal=False),
)
item_lists = st.lists(st.tuples(quanta(300), runtimes), max_size=25)
budgets = quanta(4000)


class TestProperties(TestCase):
    def solve(self, items, budget):
        memory, runtime = [m for m, _ in items], [r for _, r in items]
        return dp_knapsack_sliding_hirschberg(memory, runtime, budget)

    def assert_not_less(self, larger, smaller):
        # float64 totals of one set of items differ by the order of the sum.
        self.assertGreaterEqual(larger, smaller * (1 - 1e-12))

    @settings(deadline=None, max_examples=150)
    @given(item_lists, budgets)
    def test_feasible_and_complete(self, items, budget):
        kept, saved, recomputable = self.solve(items, budget)
        used = sum(round(items[i][0] * SCALE) for i in saved)
        self.assertLessEqual(used, round(budget * SCALE))
        self.assertEqual(saved, sorted(saved))
        self.assertEqual(recomputable, sorted(recomputable, reverse=True))
        self.assertEqual(sorted(saved + recomputable), list(range(len(items))))
        self.assertEqual(kept, math.fsum(items[i][1] for i in saved), rtol=0, atol=0)

    @settings(deadline=None, max_examples=100)
    @given(item_lists, budgets, st.randoms(use_true_random=False))
    def test_order_of_the_items_does_not_matter(self, items, budget, rng):
        kept, saved, _ = self.solve(items, budget)
        shuffled = rng.sample(items, len(items))
        kept_shuffled, saved_shuffled, _ = self.solve(shuffled, budget)
        self.assertEqual(kept, kept_shuffled, rtol=1e-12, atol=0)
        if all(r == int(r) for _, r in items):  # totals are exact, and so are ties
            self.assertEqual(
                sum(round(items[i][0] * SCALE) for i in saved),
                sum(round(shuffled[i][0] * SCALE) for i in saved_shuffled),
            )

    @settings(deadline=None, max_examples=100)
    @given(item_lists, budgets, budgets)
    def test_monotone_in_the_budget(self, items, budget, more):
        kept, _, _ = self.solve(items, budget)
        self.assert_not_less(self.solve(items, budget + more)[0], kept)

    @settings(deadline=None, max_examples=100)
    @given(item_lists, st.tuples(quanta(300), runtimes), budgets)
    def test_another_item_never_lowers_the_value(self, items, another, budget):
        kept, _, _ = self.solve(items, budget)
        self.assert_not_less(self.solve([*items, another], budget)[0], kept)

    @settings(deadline=None, max_examples=100)
    @given(item_lists, budgets, st.integers(-40, 40))
    def test_scaled_runtimes_scale_the_value(self, items, budget, exponent):
        scale = 2.0**exponent  # exact, so that the plan is the same too
        kept, saved, _ = self.solve(items, budget)
        scaled = self.solve([(m, r * scale) for m, r in items], budget)
        self.assertEqual(scaled[0], kept * scale, rtol=0, atol=0)
        self.assertEqual(scaled[1], saved)

    @settings(deadline=None, max_examples=100)
    @given(item_lists, st.lists(budgets, max_size=6))
    def test_profile_is_what_each_budget_keeps(self, items, several):
        profile = (
            kept_runtime_profile(*map(list, zip(*items)), several)
            if items
            else (kept_runtime_profile([], [], several))
        )
        self.assertEqual(len(profile), len(several))
        for budget, kept in zip(several, profile):
            self.assertEqual(kept, self.solve(items, budget)[0], rtol=1e-12, atol=0)


class TestEdges(TestCase):
    def check(self, memory, runtime, budget, saved):
        kept, actual, recomputable = dp_knapsack_sliding_hirschberg(
            memory, runtime, budget
        )
        self.assertIs(type(kept), float)
        self.assertEqual(actual, saved)
        self.assertEqual(kept, float(sum(runtime[i] for i in saved)))
        others = [i for i in reversed(range(len(memory))) if i not in saved]
        self.assertEqual(recomputable, others)

    def test_no_items(self):
        self.check([], [], 0.5, [])
        self.check([], [], math.inf, [])

    def test_one_item(self):
        self.check([0.5], [1.0], 0.5, [0])
        self.check([0.5], [1.0], 0.4999, [])

    def test_zero_budget(self):
        self.check([0.5, 0.0, 0.25], [1.0, 2.0, 3.0], 0.0, [1])
        self.check([0.5, 0.25], [1.0, 3.0], 0, [])

    def test_everything_fits(self):
        self.check([0.5, 0.25, 0.25], [1.0, 2.0, 3.0], 1.0, [0, 1, 2])

    def test_infinite_budget_keeps_what_is_worth_keeping(self):
        self.check([1e9, 0.5, 1e300], [1.0, 0.0, 3.0], math.inf, [0, 2])

    def test_zero_memory(self):
        self.check([0.0, 0.0, 0.3], [1.0, 0.0, 5.0], 0.2, [0])

    def test_zero_and_negative_runtime(self):
        self.check([0.1, 0.1, 0.1], [0.0, -1.0, 2.0], 1.0, [2])

    def test_equal_items_save_the_lowest_indices(self):
        self.check([0.1] * 7, [3.0] * 7, 0.35, [0, 1, 2])

    def test_least_memory_of_equal_runtime(self):
        # 5 is kept by item 0, by items 1 and 3, and, in less memory, by items 2 and 3.
        self.check([0.5, 0.4, 0.3, 0.1], [5.0, 3.0, 3.0, 2.0], 0.5, [2, 3])

    def test_lowest_indices_of_equal_runtime_and_memory(self):
        # {0, 3} and {1, 2} both keep 7 in 0.7.
        self.check([0.5, 0.4, 0.3, 0.2], [5.0, 4.0, 3.0, 2.0], 0.7, [0, 3])
        self.check([0.2, 0.3, 0.4, 0.5], [2.0, 3.0, 4.0, 5.0], 0.7, [0, 3])

    def test_item_larger_than_the_budget(self):
        self.check([2.0, 0.3, 0.3], [100.0, 1.0, 1.0], 0.5, [1])

    def test_fractional_sizes(self):
        self.check([0.5, 1.5, 2.0], [2.0, 5.0, 6.0], 2.0, [0, 1])
        self.check([0.5, 1.5, 2.0], [2.0, 5.0, 6.0], 3.5, [1, 2])

    def test_whole_numbers_as_input(self):
        self.check([3, 4, 5, 6], [30, 50, 60, 70], 10, [1, 3])

    def test_rounding_is_half_to_even(self):
        # 1/32 is 312.5 quanta and 3/32 is 937.5, both exactly: 312 and 938.
        self.check([1 / 32], [1.0], 0.0312, [0])
        self.check([1 / 32], [1.0], 0.0311, [])
        self.check([3 / 32], [1.0], 0.0938, [0])
        self.check([3 / 32], [1.0], 0.0937, [])
        self.check([0.0938], [1.0], 3 / 32, [0])
        self.check([0.0313], [1.0], 1 / 32, [])

    def test_huge_runtime_beside_one(self):
        # 1e18 + 1 is 1e18 in float64. Whole totals are exact: 0 and 2 beat 0 and 1.
        self.check([0.4, 0.3, 0.3, 0.2], [1e18, 1.0, 2.0, 1.0], 0.7, [0, 2])
        self.check([0.4, 0.3, 0.3, 0.2], [1e18, 1.0, 1.0, 1.5], 0.6, [0, 3])

    def test_nothing_that_still_fits_is_left_out(self):
        # Not whole: float64 totals, in which 1e18 hides the others.
        self.check([0.5, 0.2, 0.1], [1e18, 0.5, 1.5], 0.6, [0, 2])
        self.check([0.5, 0.2, 0.1, 0.9], [1e18, 0.5, 1.5, 1e18], 0.8, [0, 1, 2])

    def test_whole_runtimes_beyond_float64_are_told_apart(self):
        self.check([0.5, 0.5], [2**60, 2**60 + 1], 0.5, [1])
        self.check([0.5, 0.5, 0.5], [2**62, 2**62 + 1, 5], 0.9, [1])

    def test_runtimes_whose_sum_overflows(self):
        kept, saved, _ = dp_knapsack_sliding_hirschberg(
            [0.3, 0.31, 0.32], [1e308, 1.5e308, 1.7e308], 0.63
        )
        self.assertEqual(saved, [1, 2])
        self.assertEqual(kept, math.inf)

    def test_sizes_beyond_float64_in_quanta(self):
        self.check([1e308, 0.2, 1e305], [1.0, 1.0, 1.0], 1.0, [1])

    @parametrize("split", [False, True])
    def test_alike_items_of_few_classes(self, split):
        # As in a model of repeated layers; many capacities are worth the same.
        rng = random.Random(3)
        classes = [(2341, 31), (765, 22), (99, 1), (1000, 1)]
        items = [rng.choice(classes) for _ in range(120)]
        weights, values = [w for w, _ in items], [v for _, v in items]
        with small_steps(2048) if split else contextlib.nullcontext():
            plan = solve_quantized(weights, values, 20_000)
        self.assertEqual(
            total(values, plan), total(values, table_best(weights, values, 20_000))
        )
        self.assertLessEqual(total(weights, plan), 20_000)

    @parametrize(
        "memory, runtime, budget, message",
        [
            ([0.1], [1.0, 2.0], 0.5, "memory has 1 items but runtime has 2"),
            ([0.1, math.nan], [1.0, 2.0], 0.5, r"memory\[1\] = nan is not a finite"),
            ([math.inf], [1.0], 0.5, r"memory\[0\] = inf is not a finite"),
            ([0.1, -0.5], [1.0, 2.0], 0.5, r"memory\[1\] = -0\.5 is negative"),
            ([0.1], [math.nan], 0.5, r"runtime\[0\] = nan is not a finite"),
            ([0.1, 0.2], [1.0, -math.inf], 0.5, r"runtime\[1\] = -inf is not a finite"),
            ([0.1], [10**400], 0.5, r"runtime\[0\] = 10+ is not a finite"),
            ([0.1], [1.0], math.nan, "max_memory = nan is NaN or negative"),
            ([0.1], [1.0], -0.1, r"max_memory = -0\.1 is NaN or negative"),
            ([], [], -math.inf, "max_memory = -inf is NaN or negative"),
        ],
        name_fn=lambda memory, runtime, budget, message: (
            "".join(c if c.isalnum() else "_" for c in message[:24])
            + f"_{len(runtime)}"
        ),
    )
    def test_bad_arguments(self, memory, runtime, budget, message):
        with self.assertRaisesRegex(ValueError, message):
            dp_knapsack_sliding_hirschberg(memory, runtime, budget)
        with self.assertRaisesRegex(
            ValueError, message.replace("max_memory", r"budgets\[1\]")
        ):
            kept_runtime_profile(memory, runtime, [0.5, budget])

    def test_profile_of_many_budgets(self):
        memory, runtime = [0.5, 0.25, 0.25, 0.0], [4, 3, 2, 1]
        budgets = [0.0, 0.2, 0.25, 0.5, 0.75, 0.9999, 1.0, 7.0, math.inf]
        profile = kept_runtime_profile(memory, runtime, budgets)
        self.assertEqual(profile, [1.0, 1.0, 4.0, 6.0, 8.0, 8.0, 10.0, 10.0, 10.0])
        self.assertEqual(kept_runtime_profile(memory, runtime, []), [])


class Refuse(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise AssertionError(f"{func} reached a mode of the caller")


class RefuseFunctions(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise AssertionError(f"{func} reached a mode of the caller")


@contextlib.contextmanager
def default_device_meta():
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextlib.contextmanager
def default_dtype_half():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float16)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def deterministic():
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


@contextlib.contextmanager
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


MODES = {
    "fake": FakeTensorMode,
    "device_meta": default_device_meta,
    "device_context": lambda: DeviceContext(torch.device("meta")),
    "dtype_half": default_dtype_half,
    "deterministic": deterministic,
    "inference": torch.inference_mode,
    "no_grad": torch.no_grad,
    "grad": torch.enable_grad,
    "no_dispatch": no_dispatch,
    "dispatch_mode": Refuse,
    "function_mode": RefuseFunctions,
    "one_thread": one_thread,
}


class TestModes(TestCase):
    @parametrize("mode", sorted(MODES))
    @parametrize("split", [False, True])
    def test_same_plan_and_nothing_changed(self, mode, split):
        rng = random.Random(11)
        memory = [rng.randint(1, 60) / SCALE for _ in range(60)]
        runtime = [rng.randint(1, 90) for _ in memory]
        weights = [round(m * SCALE) for m in memory]
        plan = table_best(weights, runtime, 900)
        with MODES[mode]():
            with small_steps(100) if split else contextlib.nullcontext():
                before = self.state()
                kept, saved, _ = dp_knapsack_sliding_hirschberg(memory, runtime, 0.09)
                profile = kept_runtime_profile(memory, runtime, [0.03, 0.09])
                after = self.state()
        self.assertEqual(before, after)
        self.assertEqual(kept, total(runtime, plan))
        self.assertEqual(total(weights, saved), total(weights, plan))
        self.assertEqual(profile[1], kept)
        best = table_best(weights, runtime, 300)
        self.assertEqual(profile[0], total(runtime, best))

    def state(self):
        dispatch_modes = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
        function_modes = torch.overrides._get_current_function_mode_stack()
        with torch._C.DisableTorchFunction(), no_dispatch():
            return (
                dispatch_modes,
                function_modes,  # the default device is one of them
                torch.get_num_threads(),
                torch.get_default_dtype(),
                torch.is_grad_enabled(),
                torch.is_inference_mode_enabled(),
                torch.are_deterministic_algorithms_enabled(),
                torch.get_rng_state().tolist(),
            )


class TestMemory(TestCase):
    @unittest.skipUnless(sys.platform == "linux", "reads /proc/self/status")
    def test_twenty_bytes_per_quantum(self):
        script = """
            import random
            from torch._functorch._activation_checkpointing import knapsack_hirschberg

            def kib(field):
                with open("/proc/self/status") as status:
                    line = next(line for line in status if line.startswith(field))
                return int(line.split()[1])

            rng = random.Random(1)
            capacity = 5_000_000
            weights = [rng.randint(1, capacity // 10) for _ in range(48)]
            weights[0], weights[1] = 99_991, 100_003  # primes: no common divisor
            values = [rng.random() for _ in weights]
            knapsack_hirschberg.solve_quantized(weights[:9], values[:9], 100_000)
            idle = kib("VmRSS")
            saved = knapsack_hirschberg.solve_quantized(weights, values, capacity)
            assert sum(weights[i] for i in saved) <= capacity < sum(weights)
            print((kib("VmHWM") - idle) * 1024 / capacity)
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        bytes_per_quantum = float(done.stdout)
        self.assertLessEqual(bytes_per_quantum, 20)
        self.assertGreater(bytes_per_quantum, 8)  # one row at least: it was measured


class TestWiring(TestCase):
    def test_the_config_value_means_this_module(self):
        from torch._functorch import config, partitioners

        self.assertIs(
            partitioners.dp_knapsack_sliding_hirschberg, dp_knapsack_sliding_hirschberg
        )
        calls = mock.Mock(return_value=(1.0, [0], []))
        with (
            mock.patch.object(partitioners, "dp_knapsack_sliding_hirschberg", calls),
            config.patch(
                activation_memory_budget_solver="dp_knapsack_sliding_hirschberg"
            ),
        ):
            partitioners._optimize_runtime_with_given_memory(
                None, [0.1], [1.0], 0.5, None, []
            )
        calls.assert_called_once_with([0.1], [1.0], 0.5)

    def test_compiled_under_a_budget(self):
        from torch._functorch import config, partitioners

        torch.manual_seed(0)
        layers = [torch.nn.Linear(16, 16) for _ in range(6)]
        model = torch.nn.Sequential(
            *(m for layer in layers for m in (layer, torch.nn.Sigmoid()))
        )
        x = torch.randn(8, 16)

        def gradients(budget, solver):
            torch._dynamo.reset()
            model.zero_grad()
            with config.patch(
                activation_memory_budget=budget,
                activation_memory_budget_solver=solver,
                enable_autograd_cache=False,
            ):
                torch.compile(model, backend="aot_eager")(x).sum().backward()
            return [p.grad.clone() for p in model.parameters()]

        expected = gradients(1.0, "dp")
        with mock.patch.object(
            partitioners,
            "dp_knapsack_sliding_hirschberg",
            wraps=dp_knapsack_sliding_hirschberg,
        ) as solver:
            actual = gradients(0.5, "dp_knapsack_sliding_hirschberg")
        solver.assert_called_once()
        self.assertGreater(len(solver.call_args.args[0]), 0)
        self.assertEqual(actual, expected)


instantiate_parametrized_tests(TestOptimal)
instantiate_parametrized_tests(TestEdges)
instantiate_parametrized_tests(TestModes)


if __name__ == "__main__":
    run_tests()
