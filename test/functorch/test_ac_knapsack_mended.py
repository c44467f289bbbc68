# Owner(s): ["module: functorch"]
"""
The ilp and greedy solvers: optimal and feasible plans, reported by their own items.

It stands alone, so that it can be submitted with the fix. The two captured instances
are 4 Llama decoder layers and 8 ResNet blocks, as runs of equal candidates in order;
their optima are proven by OR-tools' CP-SAT on the bytes.
"""

import itertools
import math
import random
import unittest

from torch._functorch._activation_checkpointing.knapsack import (
    greedy_knapsack,
    ilp_knapsack,
)
from torch.testing._internal.common_utils import (
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
    TEST_SCIPY,
    TestCase,
)


# (bytes, FLOPs, how many in a row); the gigabytes that budget 1 stands for
LLAMA = (
    [(524288, 33554432, 1), (360448, 23068672, 8)]
    + [(131072, 8388608, 2), (131072, 23068672, 1)] * 4
    + [(65536, 4194304, 8), (1024, 1, 9), (8, 1, 1)],
    0.01310874 - 0.00351488,
)
RESNET = (
    [(524288, 7077888, 1), (524288, 37748736, 4), (262144, 18874368, 1)]
    + [(262144, 37748736, 1), (262144, 2097152, 1), (262144, 37748736, 2)]
    + [(131072, 18874368, 1), (131072, 37748736, 1), (131072, 2097152, 1)]
    + [(131072, 37748736, 2), (65536, 18874368, 1), (65536, 37748736, 1)]
    + [(65536, 2097152, 1), (65536, 37748736, 2), (4096, 1, 1), (320, 20480, 1)]
    + [(8, 1, 1)],
    0.011831428 - 0.002910384,
)
CAPTURED = {
    "llama_0.5": (LLAMA, 0.5, 364904458),
    "resnet_0.3": (RESNET, 0.3, 453005314),
}


def best_by_enumeration(memory, runtime, budget):
    subsets = itertools.product((False, True), repeat=len(memory))
    return max(
        math.fsum(itertools.compress(runtime, kept))
        for kept in subsets
        if math.fsum(itertools.compress(memory, kept)) <= budget * (1 + 1e-12)
    )


class TestMendedSolvers(TestCase):
    def check(self, solver, memory, runtime, budget):
        """Solves; asserts that the plan is one, fits and tells its value; returns it."""
        value, saved, recomputable = solver(memory, runtime, budget)
        self.assertEqual(sorted(saved + recomputable), list(range(len(memory))))
        self.assertLessEqual(math.fsum(memory[i] for i in saved), budget * (1 + 1e-12))
        self.assertEqual(value, sum(runtime[i] for i in saved), rtol=1e-12, atol=0)
        return value


@unittest.skipIf(not TEST_SCIPY, "ilp_knapsack needs scipy")
class TestIlp(TestMendedSolvers):
    @parametrize("name", list(CAPTURED))
    def test_captured_instance_reaches_its_optimum(self, name):
        (runs, span), budget, optimum = CAPTURED[name]
        memory = [size / 1e9 / span for size, _, count in runs for _ in range(count)]
        runtime = [flops for _, flops, count in runs for _ in range(count)]
        self.assertEqual(self.check(ilp_knapsack, memory, runtime, budget), optimum)

    def test_small_instances_reach_their_optimum(self):
        rng = random.Random(0)
        units = (
            lambda: rng.random(),
            lambda: rng.choice([0.1, 0.2, 0.05, 1e-4, 1e-7]),
            lambda: 10 ** rng.uniform(-9, 0),
            lambda: rng.randint(0, 20) * 1e-6,
        )
        for trial in range(80):
            unit = units[trial % 4]
            size = rng.randint(1, 9)
            memory = [unit() for _ in range(size)]
            runtime = [
                rng.choice([0.0, 1.0, 3.7e9, rng.random() * 1e9]) for _ in memory
            ]
            budget = sum(memory) * rng.random()
            best = best_by_enumeration(memory, runtime, budget)
            value = self.check(ilp_knapsack, memory, runtime, budget)
            self.assertEqual(value, best, rtol=1e-12, atol=0)

    def test_exact_fit(self):
        # In floats 0.1 three times over is a little more than 0.3.
        self.assertEqual(self.check(ilp_knapsack, [0.1] * 3, [1.0] * 3, 0.3), 3)

    def test_small_runtimes_beside_large_ones(self):
        # 1 is below the solver's tolerance beside 3.7e9, and still worth its memory.
        memory = [0.5, 0.25, 0.25, 0.25]
        runtime = [3.7e9, 1, 1, 1]
        self.assertEqual(self.check(ilp_knapsack, memory, runtime, 1.0), 3.7e9 + 2)


class TestGreedy(TestMendedSolvers):
    def test_items_without_memory_are_saved(self):
        memory = [0.5, 0.0, 0.5, 0.0]
        value = self.check(greedy_knapsack, memory, [4.0, 1.0, 3.0, 0.0], 0.5)
        self.assertEqual(value, 5)

    def test_budget_zero(self):
        self.assertEqual(self.check(greedy_knapsack, [0.0, 0.1], [2.0, 9.0], 0.0), 2)

    def test_items_without_runtime(self):
        self.assertEqual(self.check(greedy_knapsack, [0.2, 0.3], [0.0, 0.0], 1.0), 0)

    def test_other_plans_are_as_before(self):
        # By ratio: 3 a unit, 2 a unit, then what still fits.
        memory, runtime = [0.5, 0.25, 0.5, 0.25], [1.0, 0.75, 1.0, 0.25]
        self.assertEqual(greedy_knapsack(memory, runtime, 0.8), (1.75, [1, 0], [2, 3]))


instantiate_parametrized_tests(TestIlp)


if __name__ == "__main__":
    run_tests()
