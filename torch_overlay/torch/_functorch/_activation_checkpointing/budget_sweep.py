"""One knapsack instance at many budgets: one sweep instead of a solve for each.

A solver offers a sweep as an attribute, `solver.solve_many`, with the signature of
`knapsack_exact.solve_many`. For the two solvers that round sizes, `find_sweep` knows
the sweeps below: the last row of their table holds every capacity at once. A solver
without a sweep is as welcome as before; its callers solve budget by budget.
"""

from __future__ import annotations

import math
from itertools import compress
from typing import Any, Protocol, TYPE_CHECKING

import torch
from torch._functorch._activation_checkpointing.knapsack import dp_knapsack
from torch._functorch._activation_checkpointing.knapsack_exact import (
    BudgetResult,
    exact_knapsack,
)
from torch._functorch._activation_checkpointing.knapsack_hirschberg import (
    dp_knapsack_sliding_hirschberg,
)


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch._functorch._activation_checkpointing.knapsack_evaluator import (
        KnapsackEvaluator,
    )


# Quanta per unit of memory, as in both solvers.
_QUANTA_PER_UNIT = 10_000

# Bytes of decisions beyond which a sweep would cost more memory than it is worth.
_TABLE_BYTES = 2**28

# The trade-off picture halves the budgets from 0 to 1 until they are 1/1024 apart.
_PICTURE_STEPS = 1024


class Sweep(Protocol):
    """Answers an instance at many budgets; see `knapsack_exact.solve_many`.

    The answer at a budget is the plan that the solver itself gives at it. `saved` may
    be None unless `plans`; kept_runtime and kept_memory are then the plan's sums.
    """

    def __call__(
        self,
        memory: Sequence[float],
        runtime: Sequence[float],
        budgets: Sequence[float],
        *,
        plans: bool = False,
    ) -> Sequence[BudgetResult]: ...


def find_sweep(solver: Callable[..., Any]) -> Sweep | None:
    """The solver's sweep, None where it offers none."""
    if solver is dp_knapsack:
        return sweep_dp
    if solver is dp_knapsack_sliding_hirschberg:
        return sweep_sliding
    sweep: Sweep | None = getattr(solver, "solve_many", None)
    return sweep


def share(part: float, whole: float) -> float:
    """part / whole, and 0.0 where there is nothing to share."""
    return part / whole if whole else 0.0


def sweep_dp(
    memory: Sequence[float],
    runtime: Sequence[float],
    budgets: Sequence[float],
    *,
    plans: bool = False,
) -> list[BudgetResult]:
    """Answer at each budget what `dp_knapsack` answers, from one pass over the items.

    Args:
        memory: n sizes, in the budgets' unit; at least 0.
        runtime: n runtimes in any unit.
        budgets: in any order; each at least 0.
        plans: `saved` is given in any case, as it comes out of the pass.

    Returns:
        A result for each budget. The plan and kept_runtime are dp_knapsack's, with
        its rounding of sizes to 1/10000 and its float32 totals; kept_memory is the
        sum of the plan's sizes, which through that rounding may pass the budget.

    Complexity: O(n (W + len(budgets))) time and n W bytes for W quanta of the largest
    budget; dp_knapsack at that budget alone takes 4 n W bytes.
    """
    weights = [round(amount * _QUANTA_PER_UNIT) for amount in memory]
    capacities = [round(budget * _QUANTA_PER_UNIT) for budget in budgets]
    values = torch.tensor(runtime, dtype=torch.float32, device="cpu")
    row, taken = _fill_table(weights, values, max(capacities, default=0), ties=False)
    kept = row[torch.tensor(capacities, dtype=torch.long, device="cpu")].tolist()
    return [
        BudgetResult(kept_runtime, math.fsum(memory[i] for i in saved), saved)
        for kept_runtime, saved in zip(kept, _walk_back(taken, weights, capacities))
    ]


def sweep_sliding(
    memory: Sequence[float],
    runtime: Sequence[float],
    budgets: Sequence[float],
    *,
    plans: bool = False,
) -> list[BudgetResult]:
    """Answer at each budget what `dp_knapsack_sliding_hirschberg` answers.

    Arguments and cost are those of `sweep_dp`, with float64 totals and that solver's
    ties: the least rounded memory, then the lower indices. Where the decisions would
    take more than 256 MiB, each budget is solved by itself.
    """
    quanta = [round(budget * _QUANTA_PER_UNIT) for budget in budgets]
    max_capacity = max(quanta, default=0)
    if len(memory) * (max_capacity + 1) > _TABLE_BYTES:
        plans_saved = [
            dp_knapsack_sliding_hirschberg(list(memory), list(runtime), budget)[1]
            for budget in budgets
        ]
    else:
        # The last item of the table is decided first: the lowest index.
        items = [i for i in reversed(range(len(memory))) if runtime[i] > 0]
        weights = [round(memory[i] * _QUANTA_PER_UNIT) for i in items]
        values = torch.tensor(
            [runtime[i] for i in items], dtype=torch.float64, device="cpu"
        )
        row, taken = _fill_table(weights, values, max_capacity, ties=True)
        capacities = torch.tensor(quanta, dtype=torch.long, device="cpu")
        least = torch.searchsorted(row, row[capacities]).tolist()
        plans_saved = [
            [items[k] for k in reversed(saved)]
            for saved in _walk_back(taken, weights, least)
        ]
    return [
        BudgetResult(
            math.fsum(runtime[i] for i in saved),
            math.fsum(memory[i] for i in saved),
            saved,
        )
        for saved in plans_saved
    ]


@torch.inference_mode()
def _fill_table(
    weights: Sequence[int], values: torch.Tensor, capacity: int, *, ties: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The table's last row, and for each item and capacity whether it is saved.

    The row is updated in place: at a capacity it doesn't depend on those above, so
    that it answers all budgets at once. `ties`: whether to save an item that makes
    no difference.
    """
    row = torch.zeros(capacity + 1, dtype=values.dtype, device="cpu")
    taken = torch.zeros((len(weights), capacity + 1), dtype=torch.bool, device="cpu")
    for weight, value, saved in zip(weights, values.tolist(), taken.unbind()):
        if weight > capacity:
            continue
        without = row[weight:]
        saving = row[: capacity + 1 - weight] + value
        if ties:
            torch.ge(saving, without, out=saved[weight:])
        elif weight:
            torch.gt(saving, without, out=saved[weight:])
        else:
            torch.ne(saving, without, out=saved)
        if weight:
            torch.maximum(saving, without, out=without)
        else:
            row = saving
    return row, taken


@torch.inference_mode()
def _walk_back(
    taken: torch.Tensor, weights: Sequence[int], capacities: Sequence[int]
) -> list[list[int]]:
    """The saved items at each capacity, ascending; all capacities walk together."""
    left = torch.tensor(capacities, dtype=torch.long, device="cpu")
    chosen = torch.empty(
        (len(weights), len(capacities)), dtype=torch.uint8, device="cpu"
    )
    decisions = taken.view(torch.uint8).unbind()
    for i, saved in reversed(list(enumerate(chosen.unbind()))):
        torch.index_select(decisions[i], 0, left, out=saved)
        left.sub_(saved, alpha=weights[i])
    items = range(len(weights))
    return [list(compress(items, column)) for column in chosen.t().tolist()]


def evaluate_sweep(
    evaluator: KnapsackEvaluator,
    sweep: Sweep,
    budgets: Sequence[float],
    account_for_backward_pass: bool,
) -> list[dict[str, float]]:
    """Evaluate the sweep's answer at each budget, and each distinct plan once.

    The dicts are those of `evaluate_knapsack_output` with the budget under
    "memory_budget". The sweep's own sums serve where they are the evaluator's: no
    backward pass to simulate, and the knapsack was given the nodes' own sizes and
    runtimes. Otherwise plans are asked for.

    Complexity: the sweep, O(n) for each distinct plan, and the simulation if asked.
    """
    info = evaluator._graph_info_provider
    given_memory = info.get_knapsack_memory_input()
    given_runtime = info.get_knapsack_runtime_input()
    names = info.all_recomputable_banned_nodes
    memory = [info.all_node_memories[name] for name in names]
    runtime = [info.all_node_runtimes[name] for name in names]
    sums_serve = (
        not account_for_backward_pass
        and memory == given_memory
        and runtime == given_runtime
    )
    all_memory = info.get_non_ac_peak_memory()
    all_runtime = info.get_theoretical_max_runtime()
    by_plan: dict[tuple[int, ...], tuple[float, float]] = {}
    results = []
    for budget, (kept_runtime, peak, saved) in zip(
        budgets, sweep(given_memory, given_runtime, budgets, plans=not sums_serve)
    ):
        if saved is None:
            # Where all is kept, the difference of two sums may come out below zero.
            recomputed = max(all_runtime - kept_runtime, 0.0)
        else:
            plan = tuple(saved)
            if plan not in by_plan:
                others = _others(plan, len(names))
                if account_for_backward_pass:
                    outcome = evaluator.evaluate_knapsack_output(
                        saved, others, account_for_backward_pass=True
                    )
                    by_plan[plan] = (
                        outcome["peak_memory"],
                        outcome["recomputation_runtime"],
                    )
                else:
                    by_plan[plan] = (
                        sum(memory[i] for i in saved),
                        sum(runtime[i] for i in others),
                    )
            peak, recomputed = by_plan[plan]
        results.append(
            {
                "peak_memory": peak,
                "recomputation_runtime": recomputed,
                "non_ac_peak_memory": all_memory,
                "theoretical_max_runtime": all_runtime,
                "percentage_of_theoretical_peak_memory": share(peak, all_memory),
                "percentage_of_theoretical_peak_runtime": share(
                    recomputed, all_runtime
                ),
                "memory_budget": budget,
            }
        )
    return results


def solve_picture_budgets(
    solver: object, memory: Sequence[float], runtime: Sequence[float]
) -> dict[float, tuple[float, list[int], list[int]]]:
    """Solve every budget that the partitioner's trade-off picture can ask for.

    `solver` is the config value activation_memory_budget_solver. Returns the solver's
    answer (kept_runtime, saved, recomputable) by budget; empty if it has no sweep.
    """
    if solver == "dp":
        sweep = find_sweep(dp_knapsack)
    elif solver == "dp_knapsack_sliding_hirschberg":
        sweep = find_sweep(dp_knapsack_sliding_hirschberg)
    elif solver == "exact":
        sweep = find_sweep(exact_knapsack)
    else:
        sweep = None
    if sweep is None:
        return {}
    budgets = [step / _PICTURE_STEPS for step in range(_PICTURE_STEPS + 1)]
    answers = {}
    for budget, result in zip(budgets, sweep(memory, runtime, budgets, plans=True)):
        if result.saved is None:
            raise AssertionError("a sweep that was asked for plans gave none")
        answers[budget] = (
            result.kept_runtime,
            result.saved,
            _others(result.saved, len(memory)),
        )
    return answers


def _others(saved: Sequence[int], n: int) -> list[int]:
    """The indices below n that are not saved, descending as solvers give them."""
    kept = set(saved)
    return [i for i in reversed(range(n)) if i not in kept]
