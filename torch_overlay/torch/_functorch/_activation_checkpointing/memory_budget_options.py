"""
Checks at partition time what a user sets for the activation memory budget.

Without it a NaN budget compares false with every bound and so passes for one, and an
unknown solver goes unnoticed until some graph comes as far as the knapsack.
"""

from __future__ import annotations

import numbers

from torch._inductor.custom_graph_pass import CustomKnapsackSolver


# The names that the partitioner's branch on activation_memory_budget_solver knows.
SOLVERS = (
    "dp",
    "dp_knapsack_sliding_hirschberg",
    "dynamic_memory_budget_dp",
    "dynamic_memory_budget_exact",
    "exact",
    "greedy",
    "ilp",
)


def check_budget_options(memory_budget: object, solver: object) -> None:
    """
    Raises RuntimeError, with the option and what it accepts, for a budget that is not a
    number from 0 to 1, or for a solver that does not exist, where one may be needed.
    """
    # NaN is a number, and not from 0 to 1.
    if not (isinstance(memory_budget, numbers.Real) and 0 <= float(memory_budget) <= 1):
        raise RuntimeError(
            "activation_memory_budget must be a number from 0 (recompute all) to 1 "
            f"(save what is fastest), not {memory_budget!r}. It is set by "
            "torch._functorch.config.activation_memory_budget or, for a region, by "
            "torch.autograd.graph.region_activation_memory_budget."
        )
    if memory_budget == 1 or isinstance(solver, CustomKnapsackSolver):
        return
    if solver not in SOLVERS:
        raise RuntimeError(
            f"Not aware of memory budget knapsack solver: {solver!r}. "
            "torch._functorch.config.activation_memory_budget_solver must be one of "
            f"{', '.join(map(repr, SOLVERS))}, or a CustomKnapsackSolver."
        )
