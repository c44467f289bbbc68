# Owner(s): ["module: functorch"]
"""Regression test for upstream issue 197871: the sliding knapsack overspent.

It stands alone: it needs nothing but torch and the one function it is about, so
that it can be submitted with the fix.
"""

import random

from torch._functorch._activation_checkpointing.knapsack import (
    dp_knapsack_sliding_hirschberg,
)
from torch.testing._internal.common_utils import run_tests, TestCase


QUANTUM = 1e-4  # the solver rounds memory to this


def best_by_enumeration(weights, values, capacity):
    """Greatest value of any subset whose weights sum to at most `capacity`."""
    reachable = [(0, 0)]
    for weight, value in zip(weights, values):
        reachable += [(w + weight, v + value) for w, v in reachable]
    return max(v for w, v in reachable if w <= capacity)


class TestSlidingKnapsackBudget(TestCase):
    # Called through the class, so that a subclass can put another function to the test.
    solver = staticmethod(dp_knapsack_sliding_hirschberg)

    def check(self, weights, values, capacity, best):
        """Solve in quanta; assert the plan's weight, value and partition of the items."""
        memory = [weight * QUANTUM for weight in weights]
        kept, saved, recomputable = self.solver(memory, values, capacity * QUANTUM)
        self.assertLessEqual(sum(weights[i] for i in saved), capacity)
        self.assertEqual(sum(values[i] for i in saved), best)
        self.assertEqual(kept, best)
        self.assertEqual(sorted(saved + recomputable), list(range(len(weights))))

    def test_three_unit_items_share_one_unit(self):
        self.check([1, 1, 1], [1.0, 1.0, 1.0], capacity=1, best=1.0)

    def test_four_items(self):
        self.check([25, 5, 22, 26], [25.0, 2.0, 27.0, 28.0], capacity=72, best=57.0)

    def test_eight_items(self):
        self.check(
            [2, 19, 25, 2, 14, 3, 9, 7],
            [47.0, 21.0, 12.0, 8.0, 12.0, 45.0, 24.0, 2.0],
            capacity=29,
            best=128.0,
        )

    def test_random_instances_against_enumeration(self):
        rng = random.Random(197871)
        for _ in range(200):
            n = rng.randint(1, 10)
            weights = [rng.randint(0, 30) for _ in range(n)]
            values = [float(rng.randint(1, 50)) for _ in range(n)]
            capacity = rng.randint(0, sum(weights))
            best = best_by_enumeration(weights, values, capacity)
            self.check(weights, values, capacity, best)

    def test_many_items_stay_within_the_budget(self):
        # The fault grows with the number of splits: each handed out one quantum.
        rng = random.Random(5)
        weights = [rng.randint(1, 4) for _ in range(500)]
        capacity = sum(weights) // 2
        memory = [weight * QUANTUM for weight in weights]
        values = [rng.random() for _ in weights]
        _, saved, _ = self.solver(memory, values, capacity * QUANTUM)
        self.assertLessEqual(sum(weights[i] for i in saved), capacity)


if __name__ == "__main__":
    run_tests()
