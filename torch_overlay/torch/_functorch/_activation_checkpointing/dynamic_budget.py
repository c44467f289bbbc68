"""A memory budget that finds itself: the knee of the trade-off, at or below the budget.

This is the config value "dynamic_memory_budget_exact"; "dynamic_memory_budget_dp" is
its counterpart in partitioners.py, with sizes rounded to 1/10000.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from torch._functorch._activation_checkpointing.graph_info_provider import (
    GraphInfoProvider,
)
from torch._functorch._activation_checkpointing.knapsack_evaluator import (
    KnapsackEvaluator,
)
from torch._functorch._activation_checkpointing.knapsack_exact import exact_knapsack


if TYPE_CHECKING:
    from torch.fx import Graph, Node


log: logging.Logger = logging.getLogger(__name__)


def exact_knapsack_at_knee(
    joint_graph: Graph,
    candidates: list[Node],
    memory: list[float],
    runtime: list[float],
    max_memory: float,
) -> tuple[float, list[int], list[int]]:
    """Solve the knapsack exactly at the knee between 0.001 and max_memory.

    candidates, memory and runtime describe the same n items; sizes and max_memory are
    in one unit. Returns (kept_runtime, saved, recomputable) as `exact_knapsack` does,
    and raises what it raises. One sweep of 100 budgets and one solve.
    """
    log.warning(
        "dynamic_memory_budget_exact is experimental: it may save less than the "
        "memory budget allows, and how much less may change between versions."
    )
    info = GraphInfoProvider.initialize_from_graph(
        joint_graph=joint_graph,
        all_recomputable_banned_nodes=candidates,
        recorded_knapsack_input_memories=memory,
        recorded_knapsack_input_runtimes=runtime,
    )
    knee = KnapsackEvaluator(info).get_knee_point_memory_budget(
        knapsack_algo=exact_knapsack, max_mem_budget=max_memory
    )
    return exact_knapsack(memory, runtime, knee)
