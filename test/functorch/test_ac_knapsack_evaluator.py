# Owner(s): ["module: functorch"]
"""GraphInfoProvider, KnapsackEvaluator and what they rest on.

Expected values come from hand-made graphs, from networkx, from a simulation by sets
written for the purpose, and from solving budget by budget.
"""

import inspect
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
import unittest
from collections import Counter
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from unittest import mock

import networkx as nx
import torch
import torch._functorch.config as functorch_config
from torch._functorch import partitioners
from torch._functorch._activation_checkpointing import budget_sweep, dynamic_budget
from torch._functorch._activation_checkpointing.budget_sweep import (
    find_sweep,
    solve_picture_budgets,
    sweep_dp,
    sweep_sliding,
)
from torch._functorch._activation_checkpointing.candidate_info import Candidate
from torch._functorch._activation_checkpointing.candidate_reachability import (
    reduce_reachability,
)
from torch._functorch._activation_checkpointing.graph_info_provider import (
    GraphInfoProvider,
)
from torch._functorch._activation_checkpointing.knapsack import (
    dp_knapsack,
    greedy_knapsack,
)
from torch._functorch._activation_checkpointing.knapsack_evaluator import (
    KnapsackEvaluator,
)
from torch._functorch._activation_checkpointing.knapsack_exact import (
    BudgetResult,
    exact_knapsack,
)
from torch._functorch._activation_checkpointing.knapsack_hirschberg import (
    dp_knapsack_sliding_hirschberg,
)
from torch.fx import Graph
from torch.testing._internal.common_utils import run_tests, TestCase


try:
    import matplotlib
except ImportError:
    matplotlib = None

INSTANCES = Path(__file__).parents[1] / "instances"
CAPTURED = ("llama-4", "hf-bert-4", "resnet-8")


def make_provider(nodes, edges, candidates, memories, runtimes, **kwargs):
    return GraphInfoProvider(
        graph_nodes_in_order=nodes,
        graph_edges=edges,
        all_recomputable_banned_nodes=candidates,
        recorded_knapsack_input_memories=memories,
        recorded_knapsack_input_runtimes=runtimes,
        **kwargs,
    )


def chain_provider(memories, runtimes):
    """A chain of candidates n0 -> n1 -> ..., with nothing else in the graph."""
    nodes = [f"n{i}" for i in range(len(memories))]
    return make_provider(nodes, list(pairwise(nodes)), nodes, memories, runtimes)


def random_graph(rng, n_nodes, n_candidates, reach):
    """A random DAG in topological order; the candidates in random order."""
    nodes = [f"n{i}" for i in range(n_nodes)]
    edges = set()
    for i in range(1, n_nodes):
        for _ in range(rng.choice((0, 1, 2, 3))):
            edges.add((nodes[max(0, i - rng.randint(1, reach))], nodes[i]))
    edges = sorted(edges)
    rng.shuffle(edges)
    return nodes, edges, rng.sample(nodes, n_candidates)


def random_knapsack(rng, n):
    """Sizes as shares of their sum; few classes, zeros and runtimes of 1 included."""
    classes = [
        (rng.choice((0, 1, 3, 7, 64)) / 7, rng.choice((1, 1, 5, rng.randint(1, 10**6))))
        for _ in range(max(1, n // 3))
    ]
    items = [rng.choice(classes) for _ in range(n)]
    total = sum(size for size, _ in items) or 1.0
    return [size / total for size, _ in items], [float(run) for _, run in items]


def captured_provider(name):
    """The joint graph of a trace that the partitioner emitted for a real model."""
    trace = json.loads((INSTANCES / f"{name}.json").read_text())
    info = trace["Joint Graph Node Information"]
    return make_provider(
        sorted(info, key=lambda node: info[node]["index"]),
        [(a, b) for a, b in trace["Joint Graph Edges"]["Edges"]],
        trace["Recomputable Banned Nodes Order"],
        trace["Knapsack Input Memories"],
        trace["Knapsack Input Runtimes"],
    )


def reduction_by_networkx(provider):
    closure = nx.transitive_closure_dag(provider.full_joint_nx_graph)
    among = closure.subgraph(provider.all_recomputable_banned_nodes)
    return nx.transitive_reduction(among)


def peak_by_sets(provider, saved):
    """The simulated peak from its definition: what is resident, step by step."""
    memories = provider.all_node_memories
    graph = reduction_by_networkx(provider)
    resident = set(saved)
    peak = math.fsum(memories[name] for name in resident)
    for name in reversed(provider.graph_nodes_in_order):
        if name not in graph:
            continue
        needed = [name]
        while needed:
            node = needed.pop()
            if node not in resident:
                resident.add(node)
                needed += graph.predecessors(node)
        peak = max(peak, math.fsum(memories[node] for node in resident))
        resident.remove(name)
    return peak


def simulate(provider, saved):
    evaluator = KnapsackEvaluator(provider)
    return evaluator._get_backward_memory_from_topologically_sorted_graph(
        node_graph=provider.recomputable_node_only_graph_with_larger_graph_context,
        node_memories=provider.all_node_memories,
        saved_nodes_set=set(saved),
        peak_memory_after_forward_pass=sum(
            provider.all_node_memories[name] for name in saved
        ),
    )


def branching_provider():
    """Six branches of six candidates each, between an input and a join."""
    rng = random.Random(0)
    branches = [[f"b{b}_{k}" for k in range(6)] for b in range(6)]
    nodes = ["x", *(name for branch in branches for name in branch), "join", "output"]
    edges = [("join", "output")]
    for branch in branches:
        path = ["x", *branch, "join"]
        edges += pairwise(path)
    candidates = [name for branch in branches for name in branch]
    rng.shuffle(candidates)
    memories = [rng.randint(1, 9) / 7 for _ in candidates]
    return make_provider(nodes, edges, candidates, memories, memories)


def branching_answer():
    """All that a process answers on the branching graph, as JSON would hold it."""
    provider = branching_provider()
    saved = provider.all_recomputable_banned_nodes[::5]
    graph = provider.recomputable_node_only_graph_with_larger_graph_context
    return [
        peak_by_sets(provider, saved),
        [list(step) for step in simulate(provider, saved)],
        [list(edge) for edge in graph.edges],
        list(graph),
        list(provider.recomputable_node_only_graph),
        repr(provider.get_non_ac_peak_memory()),
        repr(provider.get_theoretical_max_runtime()),
    ]


def without_sweep(solver):
    """The same solver as a plain callable, to be solved budget by budget."""

    def solve(memory, runtime, budget):
        return solver(memory, runtime, budget)

    return solve


@contextmanager
def calls_counted(*functions):
    """Count the calls of plain Python functions, however they are reached."""
    names = {function.__code__: function.__name__ for function in functions}
    counts = Counter()

    def profile(frame, event, arg):
        if event == "call" and frame.f_code in names:
            counts[names[frame.f_code]] += 1

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield counts
    finally:
        sys.setprofile(before)


class TestBackwardSimulation(TestCase):
    def test_saved_predecessor_is_not_recomputed(self):
        # Backward: n2 needs itself alone, as n1 is saved: 2 + 4. Then n1 goes, n0 is
        # recomputed and goes.
        provider = chain_provider([1.0, 2.0, 4.0], [1.0, 1.0, 1.0])
        steps = [memory for memory, _ in simulate(provider, ["n1"])]
        self.assertEqual(steps, [2.0, 6.0, 2.0, 0.0, 1.0, 0.0])
        result = KnapsackEvaluator(provider).evaluate_knapsack_output(
            [1], [2, 0], account_for_backward_pass=True
        )
        self.assertEqual(result["peak_memory"], 6.0)

    def test_nothing_is_read_through_a_saved_node(self):
        # n3 needs n2, n2 needs n1, which is saved; n0 must wait for its own turn.
        provider = chain_provider([8.0, 1.0, 1.0, 1.0], [1.0] * 4)
        steps = simulate(provider, ["n1"])
        self.assertEqual(
            [memory for memory, _ in steps],
            [1.0, 2.0, 3.0, 2.0, 1.0, 0.0, 8.0, 0.0],
        )

    def test_memory_returns_to_zero(self):
        for seed in range(150):
            rng = random.Random(seed)
            nodes, edges, candidates = random_graph(rng, 40, rng.randint(1, 20), 12)
            memories = [float(rng.randint(0, 9)) for _ in candidates]
            provider = make_provider(nodes, edges, candidates, memories, memories)
            saved = [name for name in candidates if rng.random() < 0.4]
            steps = simulate(provider, saved)
            with self.subTest(seed=seed):
                self.assertEqual(steps[-1][0], 0.0)
                self.assertGreaterEqual(min(steps)[0], 0.0)
                self.assertEqual(max(steps)[0], peak_by_sets(provider, saved))
                recomputed = [
                    what.rsplit(" ", 1)[-1]
                    for _, what in steps
                    if what.startswith("Recomputing")
                ]
                self.assertEqual(
                    sorted(recomputed), sorted(set(candidates) - set(saved))
                )

    def test_peak_belongs_to_plan_and_schedule(self):
        # One saved tensor and one to recompute, independent: which goes first in the
        # backward pass decides whether both are there at once.
        for nodes, peak in ((["s", "r"], 20.0), (["r", "s"], 10.0)):
            provider = make_provider(nodes, [], ["s", "r"], [10.0, 10.0], [1.0, 1.0])
            result = KnapsackEvaluator(provider).evaluate_knapsack_output(
                [0], [1], account_for_backward_pass=True
            )
            self.assertEqual(result["peak_memory"], peak)

    def test_one_answer_in_five_processes(self):
        # the functions alone: this module's other imports would take most of the time
        functions = (
            make_provider,
            reduction_by_networkx,
            peak_by_sets,
            simulate,
            branching_provider,
            branching_answer,
        )
        path = "torch._functorch._activation_checkpointing"
        code = "\n".join(
            (
                "import json, math, random",
                "from itertools import pairwise",
                "import networkx as nx",
                f"from {path}.graph_info_provider import GraphInfoProvider",
                f"from {path}.knapsack_evaluator import KnapsackEvaluator",
                *map(inspect.getsource, functions),
                "print(json.dumps(branching_answer()))",
            )
        )
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", code],
                env={**os.environ, "PYTHONHASHSEED": str(seed)},
                stdout=subprocess.PIPE,
                text=True,
            )
            for seed in range(5)
        ]
        answers = [process.communicate()[0].splitlines()[-1] for process in processes]
        self.assertEqual([process.returncode for process in processes], [0] * 5)
        self.assertEqual(len(set(answers)), 1)
        peak, steps, edges, graph_order, order, *_ = json.loads(answers[0])
        self.assertEqual(max(memory for memory, _ in steps), peak)
        self.assertEqual(steps[-1][0], 0.0, atol=1e-12, rtol=0)
        self.assertEqual(len(edges), 30)  # five within each branch
        expected = [f"b{b}_{k}" for b in range(6) for k in range(6)]
        self.assertEqual(graph_order, expected)
        self.assertEqual(order, expected)

    def test_captured_graphs(self):
        for name in CAPTURED:
            if not (INSTANCES / f"{name}.json").exists():
                raise unittest.SkipTest(f"test/instances/{name}.json is not here")
            provider = captured_provider(name)
            candidates = provider.all_recomputable_banned_nodes
            _, saved, _ = exact_knapsack(
                provider.get_knapsack_memory_input(),
                provider.get_knapsack_runtime_input(),
                0.3,
            )
            names = [candidates[i] for i in saved]
            steps = simulate(provider, names)
            with self.subTest(name):
                self.assertEqual(steps[-1][0], 0.0, atol=1e-9, rtol=0)
                self.assertEqual(max(steps)[0], peak_by_sets(provider, names))


class TestCandidateGraph(TestCase):
    def assert_is_reduction(self, provider):
        graph = provider.recomputable_node_only_graph_with_larger_graph_context
        expected = reduction_by_networkx(provider)
        self.assertEqual(set(graph.nodes), set(expected.nodes))
        self.assertEqual(set(graph.edges), set(expected.edges))
        position = provider.graph_positions
        order = [position[name] for name in graph]
        self.assertEqual(order, sorted(order))
        edges = [(position[a], position[b]) for a, b in graph.edges]
        self.assertEqual(edges, sorted(edges))
        superseded = getattr(
            provider,
            "_create_recomputable_node_only_graph_with_larger_graph_context",
            None,
        )
        if superseded is not None:
            self.assertEqual(set(graph.edges), set(superseded().edges))

    def test_candidate_between_hides_the_indirect_edge(self):
        # a -> x -> b -> c and a -> c: from a only b is next, c comes after it.
        edges = [("a", "x"), ("x", "b"), ("b", "c"), ("a", "c"), ("c", "output")]
        self.assertEqual(
            reduce_reachability(
                ["a", "x", "b", "c", "output"], edges, ["c", "a", "b", "a"]
            ),
            {"a": ["b"], "b": ["c"], "c": []},
        )

    def test_random_graphs(self):
        for seed in range(80):
            rng = random.Random(seed)
            n = rng.randint(1, 60)
            nodes, edges, candidates = random_graph(rng, n, rng.randint(0, n), 15)
            sizes = [1.0] * len(candidates)
            with self.subTest(seed=seed):
                self.assert_is_reduction(
                    make_provider(nodes, edges, candidates, sizes, sizes)
                )

    def test_captured_graphs(self):
        for name in CAPTURED:
            if not (INSTANCES / f"{name}.json").exists():
                raise unittest.SkipTest(f"test/instances/{name}.json is not here")
            with self.subTest(name):
                self.assert_is_reduction(captured_provider(name))

    def test_many_candidates_in_time(self):
        nodes, edges, candidates = random_graph(random.Random(0), 20000, 2000, 60)
        start = time.perf_counter()
        reduced = reduce_reachability(nodes, edges, candidates)
        self.assertLess(time.perf_counter() - start, 2.0)
        self.assertEqual(len(reduced), 2000)

    def test_errors_name_what_is_wrong(self):
        with self.assertRaisesRegex(ValueError, r"\(a, z\).*not in the graph"):
            reduce_reachability(["a"], [("a", "z")], ["a"])
        with self.assertRaisesRegex(ValueError, r"\(b, a\) runs against"):
            reduce_reachability(["a", "b"], [("b", "a")], ["a"])
        with self.assertRaisesRegex(ValueError, "candidate z is not"):
            reduce_reachability(["a"], [], ["z"])


class TestSweep(TestCase):
    SOLVERS = (dp_knapsack, dp_knapsack_sliding_hirschberg, exact_knapsack)

    def test_known_answers(self):
        # Quanta 3, 4, 5 and budgets of 2, 4, 7, 9, 12: by hand.
        memory, runtime = [0.0003, 0.0004, 0.0005], [3.0, 4.5, 5.0]
        budgets = [0.0002, 0.0004, 0.0007, 0.0009, 0.0012]
        plans = [[], [1], [0, 1], [1, 2], [0, 1, 2]]
        for sweep in (sweep_dp, sweep_sliding):
            solved = sweep(memory, runtime, budgets)
            self.assertEqual([result.saved for result in solved], plans)
            self.assertEqual(
                [result.kept_runtime for result in solved], [0.0, 4.5, 7.5, 9.5, 12.5]
            )
            self.assertEqual(
                [result.kept_memory for result in solved],
                [0.0, 0.0004, 0.0007, 0.0009, 0.0012],
            )

    def test_sweep_gives_the_plans_of_single_solves(self):
        for seed in range(25):
            rng = random.Random(seed)
            memory, runtime = random_knapsack(rng, rng.randint(0, 40))
            budgets = [0.0, 1.0, 0.5, 0.5] + [rng.random() ** 2 for _ in range(8)]
            for solver in self.SOLVERS:
                solved = find_sweep(solver)(memory, runtime, budgets, plans=True)
                self.assertEqual(len(solved), len(budgets))
                for budget, result in zip(budgets, solved):
                    kept_runtime, saved, _ = solver(memory, runtime, budget)
                    with self.subTest(solver.__name__, seed=seed, budget=budget):
                        self.assertEqual(list(result.saved), saved)
                        self.assertEqual(result.kept_runtime, kept_runtime)

    def test_float32_totals_are_those_of_the_solver(self):
        # 1 vanishes beside 3e9 in float32, and the single solve doesn't keep it.
        memory, runtime = [0.2, 0.1, 0.3], [3e9, 1.0, 1e9]
        (result,) = sweep_dp(memory, runtime, [0.45])
        self.assertEqual(result.saved, dp_knapsack(memory, runtime, 0.45)[1])
        (result,) = sweep_sliding(memory, runtime, [0.45])
        self.assertEqual(result.saved, [0, 1])

    def test_no_budgets_and_no_items(self):
        for sweep in (sweep_dp, sweep_sliding):
            self.assertEqual(list(sweep([0.1], [1.0], [])), [])
            self.assertEqual(list(sweep([], [], [0.5])), [BudgetResult(0.0, 0.0, [])])

    def test_large_tables_are_solved_budget_by_budget(self):
        memory, runtime = [0.1, 0.2, 0.3], [1.0, 2.0, 4.0]
        expected = sweep_sliding(memory, runtime, [0.3, 0.5])
        with mock.patch.object(budget_sweep, "_TABLE_BYTES", 10):
            with calls_counted(dp_knapsack_sliding_hirschberg) as counts:
                self.assertEqual(sweep_sliding(memory, runtime, [0.3, 0.5]), expected)
        self.assertEqual(counts["dp_knapsack_sliding_hirschberg"], 2)

    def test_distribution_is_that_of_single_solves(self):
        for seed in range(12):
            rng = random.Random(seed)
            memory, runtime = random_knapsack(rng, rng.randint(1, 30))
            by_node = chain_provider(memory, runtime)
            # The knapsack's sizes are shares here, and the nodes' are bytes.
            in_bytes = GraphInfoProvider(
                graph_nodes_in_order=by_node.graph_nodes_in_order,
                graph_edges=by_node.graph_edges,
                all_recomputable_banned_nodes=by_node.all_recomputable_banned_nodes,
                all_node_memories={
                    k: v * 2**20 for k, v in by_node.all_node_memories.items()
                },
                all_node_runtimes=by_node.all_node_runtimes,
                recorded_knapsack_input_memories=memory,
                recorded_knapsack_input_runtimes=runtime,
            )
            budgets = [rng.random() for _ in range(6)]
            for provider in (by_node, in_bytes):
                evaluator = KnapsackEvaluator(provider)
                for solver in self.SOLVERS:
                    for backward in (False, True):
                        with self.subTest(solver.__name__, seed=seed, bw=backward):
                            swept, single = (
                                evaluator.evaluate_distribution_of_results_for_knapsack_algo(
                                    algo, budgets, account_for_backward_pass=backward
                                )
                                for algo in (solver, without_sweep(solver))
                            )
                            self.assertEqual(swept, single)

    def test_any_callable_is_accepted(self):
        calls = []

        def solver(memory, runtime, budget):
            calls.append(budget)
            return greedy_knapsack(memory, runtime, budget)

        evaluator = KnapsackEvaluator(chain_provider([0.5, 0.5], [1.0, 2.0]))
        results = evaluator.evaluate_distribution_of_results_for_knapsack_algo(
            solver, [0.1, 0.6]
        )
        self.assertEqual(calls, [0.1, 0.6])
        self.assertEqual([r["peak_memory"] for r in results], [0.0, 0.5])
        self.assertEqual([r["recomputation_runtime"] for r in results], [3.0, 1.0])

        def never(memory, runtime, budget):
            raise AssertionError("the sweep answers")

        asked = []

        def solve_many(memory, runtime, budgets, *, plans=False):
            asked.append((list(budgets), plans))
            return [BudgetResult(2.0, 0.5, [1] if plans else None) for _ in budgets]

        never.solve_many = solve_many
        for backward in (False, True):
            (result,) = evaluator.evaluate_distribution_of_results_for_knapsack_algo(
                never, [0.6], account_for_backward_pass=backward
            )
            self.assertEqual(result["recomputation_runtime"], 1.0)
            self.assertEqual(result["peak_memory"], 0.5)
            self.assertEqual(result["percentage_of_theoretical_peak_memory"], 0.5)
        self.assertEqual(asked, [([0.6], False), ([0.6], True)])

    def test_knee_from_one_sweep(self):
        rng = random.Random(0)
        sizes = [rng.random() for _ in range(400)]
        memory = [size / sum(sizes) for size in sizes]
        runtime = [float(rng.randint(1, 10**9)) for _ in sizes]
        evaluator = KnapsackEvaluator(chain_provider(memory, runtime))

        def timed(solver):
            start = time.perf_counter()
            knee = evaluator.get_knee_point_memory_budget(solver)
            return knee, time.perf_counter() - start

        knee, alone = timed(without_sweep(dp_knapsack))
        swept = [timed(dp_knapsack) for _ in range(5)]
        self.assertEqual({answer for answer, _ in swept}, {knee})
        self.assertGreater(alone / min(seconds for _, seconds in swept), 50)
        for solver in (dp_knapsack_sliding_hirschberg, exact_knapsack):
            self.assertEqual(timed(solver)[0], timed(without_sweep(solver))[0])

    def test_captured_knees(self):
        for name in CAPTURED:
            if not (INSTANCES / f"{name}.json").exists():
                raise unittest.SkipTest(f"test/instances/{name}.json is not here")
            evaluator = KnapsackEvaluator(captured_provider(name))
            for solver in self.SOLVERS:
                with self.subTest(name, solver=solver.__name__):
                    swept, single = (
                        evaluator.get_knee_point_memory_budget(
                            algo, max_mem_budget=0.5, iterations=20
                        )
                        for algo in (solver, without_sweep(solver))
                    )
                    self.assertEqual(swept, single)


class TestSmallFaults(TestCase):
    def test_empty_recorded_lists_are_given(self):
        provider = make_provider(
            ["a"], [], ["a"], [], [],
            all_node_memories={"a": 1.0}, all_node_runtimes={"a": 2.0},
        )  # fmt: skip
        self.assertEqual(provider.get_knapsack_memory_input(), [])
        self.assertEqual(provider.get_knapsack_runtime_input(), [])

    def test_both_names_initialize_from_a_graph(self):
        graph = Graph()
        x = graph.placeholder("x")
        y = graph.call_function(torch.sin, (x,))
        graph.output(y)
        for initialize in (
            GraphInfoProvider.initialize_from_graph,
            GraphInfoProvider.inialize_from_graph,
        ):
            provider = initialize(graph, [y], [0.5], [2.0])
            self.assertEqual(provider.graph_nodes_in_order, ["x", "sin", "output"])
            self.assertEqual(provider.get_theoretical_max_runtime(), 2.0)

    def test_shares_of_nothing_are_zero(self):
        result = KnapsackEvaluator(
            make_provider(["a"], [], [], [], [])
        ).evaluate_knapsack_output([], [], account_for_backward_pass=True)
        self.assertEqual(set(result.values()), {0})
        result = KnapsackEvaluator(
            chain_provider([0.0, 0.0], [0.0, 0.0])
        ).evaluate_knapsack_output([0], [1])
        self.assertEqual(set(result.values()), {0})

    def test_knee_of_few_iterations(self):
        evaluator = KnapsackEvaluator(chain_provider([0.02, 0.05], [1.0, 2.0]))
        for solver in (dp_knapsack, greedy_knapsack):
            knee = evaluator.get_knee_point_memory_budget(solver, iterations=1)
            self.assertEqual(knee, 0.1)
            with self.assertRaisesRegex(ValueError, "iterations .*0"):
                evaluator.get_knee_point_memory_budget(solver, iterations=0)

    def test_knee_stays_within_a_small_budget(self):
        evaluator = KnapsackEvaluator(chain_provider([0.0002, 0.0006], [1.0, 2.0]))
        for solver in (dp_knapsack, greedy_knapsack):
            knee = evaluator.get_knee_point_memory_budget(solver, max_mem_budget=0.0005)
            self.assertLessEqual(knee, 0.0005)


class TestCandidates(TestCase):
    def make_graph(self):
        """Two layers alike (mm, relu), then an mm whose left input is no candidate."""
        graph = Graph()

        def sized(node, *shape):
            node.meta["val"] = torch.empty(shape, device="meta")
            return node

        x = sized(graph.placeholder("x"), 2, 8)
        weights = [sized(graph.placeholder(f"w{i}"), 8, 8) for i in range(3)]
        nodes = []
        for weight in weights[:2]:
            left = nodes[-1] if nodes else x
            mm = graph.call_function(torch.ops.aten.mm.default, (left, weight))
            nodes.append(sized(mm, 2, 8))
            relu = graph.call_function(torch.ops.aten.relu.default, (mm,))
            nodes.append(sized(relu, 2, 8))
        mm = graph.call_function(torch.ops.aten.mm.default, (x, weights[2]))
        nodes.append(sized(mm, 2, 8))
        graph.output(tuple(nodes))
        return graph, nodes

    def test_position_class_and_bytes(self):
        graph, nodes = self.make_graph()
        shuffled = [nodes[i] for i in (3, 0, 4, 1, 2)]
        provider = GraphInfoProvider.initialize_from_graph(
            graph, shuffled, [0.2] * 5, [1.0, 9.0, 9.0, 1.0, 9.0]
        )
        # mm reads x; relu; mm_1 reads relu, a candidate; mm_2 reads x again.
        self.assertEqual(
            provider.candidates,
            [
                Candidate("relu_default_1", 7, 1, 64),
                Candidate("mm_default", 4, 0, 64),
                Candidate("mm_default_2", 8, 0, 64),
                Candidate("relu_default", 5, 1, 64),
                Candidate("mm_default_1", 6, 2, 64),
            ],
        )
        self.assertIs(provider.candidates, provider.candidates)

    def test_what_sets_classes_apart(self):
        graph, nodes = self.make_graph()

        def class_ids(memories, runtimes):
            provider = GraphInfoProvider.initialize_from_graph(
                graph, nodes, memories, runtimes
            )
            return [candidate.class_id for candidate in provider.candidates]

        self.assertEqual(class_ids([0.2] * 5, [1.0] * 5), [0, 1, 2, 1, 0])
        self.assertEqual(
            class_ids([0.2] * 5, [1.0, 1.0, 1.0, 1.0, 2.0]), [0, 1, 2, 1, 3]
        )
        self.assertEqual(
            class_ids([0.2, 0.2, 0.2, 0.3, 0.2], [1.0] * 5), [0, 1, 2, 3, 0]
        )
        nodes[1].args[0].args[1].meta["val"] = torch.empty(8, 9, device="meta")
        self.assertEqual(class_ids([0.2] * 5, [1.0] * 5), [0, 1, 2, 1, 3])

    def test_inputs_that_are_candidates_set_classes_apart(self):
        # Both relus read an mm; the first one's is a candidate, the other's is not.
        graph, nodes = self.make_graph()
        provider = GraphInfoProvider.initialize_from_graph(
            graph, [nodes[1], nodes[3], nodes[0]], [0.2] * 3, [1.0] * 3
        )
        self.assertEqual([c.class_id for c in provider.candidates], [1, 2, 0])

    def test_without_a_graph_nothing_is_alike(self):
        provider = chain_provider([0.5, 0.5], [1.0, 1.0])
        self.assertEqual(
            provider.candidates,
            [Candidate("n0", 0, 0, None), Candidate("n1", 1, 1, None)],
        )


class TestPartitioner(TestCase):
    def make_instance(self):
        graph = Graph()
        nodes = [graph.placeholder("x")]
        for _ in range(12):
            nodes.append(graph.call_function(torch.sin, (nodes[-1],)))
        graph.output(nodes[-1])
        rng = random.Random(0)
        memory = [rng.randint(1, 9) / 60 for _ in nodes[1:]]
        return graph, memory, [float(rng.randint(1, 99)) for _ in memory], nodes[1:]

    def solve(self, solver, max_memory):
        graph, memory, runtime, nodes = self.make_instance()
        with functorch_config.patch(activation_memory_budget_solver=solver):
            return partitioners._optimize_runtime_with_given_memory(
                graph, memory, runtime, max_memory, None, nodes
            )

    def test_dynamic_budget_costs_two_solves(self):
        _, memory, runtime, _ = self.make_instance()
        evaluator = KnapsackEvaluator(chain_provider(memory, runtime))
        knee = evaluator.get_knee_point_memory_budget(
            without_sweep(dp_knapsack), max_mem_budget=0.5
        )
        with calls_counted(dp_knapsack, sweep_dp) as counts:
            answer = self.solve("dynamic_memory_budget_dp", 0.5)
        self.assertEqual(counts, {"dp_knapsack": 1, "sweep_dp": 1})
        self.assertEqual(answer, dp_knapsack(memory, runtime, knee))

    def test_dynamic_budget_with_the_exact_solver(self):
        _, memory, runtime, _ = self.make_instance()
        evaluator = KnapsackEvaluator(chain_provider(memory, runtime))
        knee = evaluator.get_knee_point_memory_budget(
            without_sweep(exact_knapsack), max_mem_budget=0.5
        )
        with (
            calls_counted(exact_knapsack, exact_knapsack.solve_many) as counts,
            self.assertLogs(dynamic_budget.log, "WARNING"),
        ):
            answer = self.solve("dynamic_memory_budget_exact", 0.5)
        self.assertEqual(counts, {"exact_knapsack": 1, "solve_many": 1})
        self.assertEqual(answer, exact_knapsack(memory, runtime, knee))
        self.assertLess(knee, 0.5)

    def test_dynamic_budgets_compile(self):
        model = torch.nn.Sequential(
            *(
                module
                for _ in range(4)
                for module in (torch.nn.Linear(8, 8), torch.nn.Sigmoid())
            )
        )
        x = torch.randn(4, 8)
        model(x).sum().backward()
        expected = [parameter.grad for parameter in model.parameters()]
        for solver in ("dynamic_memory_budget_dp", "dynamic_memory_budget_exact"):
            torch._dynamo.reset()
            model.zero_grad(set_to_none=True)
            with (
                functorch_config.patch(
                    activation_memory_budget=0.5,
                    activation_memory_budget_solver=solver,
                    enable_autograd_cache=False,
                ),
                mock.patch.object(
                    KnapsackEvaluator,
                    "get_knee_point_memory_budget",
                    autospec=True,
                    side_effect=KnapsackEvaluator.get_knee_point_memory_budget,
                ) as knee,
            ):
                torch.compile(model, backend="aot_eager")(x).sum().backward()
            knee.assert_called_once()
            for parameter, gradient in zip(model.parameters(), expected):
                self.assertEqual(parameter.grad, gradient)

    def test_picture_budgets(self):
        _, memory, runtime, _ = self.make_instance()
        for name, solver in (
            ("dp", dp_knapsack),
            ("dp_knapsack_sliding_hirschberg", dp_knapsack_sliding_hirschberg),
            ("exact", exact_knapsack),
        ):
            answers = solve_picture_budgets(name, memory, runtime)
            self.assertEqual(len(answers), 1025)
            for budget in (0.0, 1 / 1024, 0.375, 1.0):
                kept, saved, recomputable = solver(memory, runtime, budget)
                self.assertEqual(answers[budget], (kept, saved, recomputable))
        for name in ("greedy", "dynamic_memory_budget_dp", lambda *args: None):
            self.assertEqual(solve_picture_budgets(name, memory, runtime), {})

    @unittest.skipIf(matplotlib is None, "the picture needs matplotlib")
    def test_picture_has_the_same_curve(self):
        matplotlib.use("Agg")
        from matplotlib import pyplot

        layers = [
            layer
            for width in (8, 16, 8, 24)
            for layer in (torch.nn.Linear(8, width), torch.nn.Sigmoid(),
                          torch.nn.Linear(width, 8), torch.nn.Tanh())
        ]  # fmt: skip
        model = torch.nn.Sequential(*layers)
        x = torch.randn(4, 8)

        def draw(solver, sweep):
            """The curve, the nodes saved, and the calls made."""
            torch._dynamo.reset()
            saved = []

            def choose(*args, **kwargs):
                saved.extend(original(*args, **kwargs))
                return list(saved)

            original = partitioners.choose_saved_values_set
            with (
                tempfile.TemporaryDirectory() as folder,
                functorch_config.patch(
                    activation_memory_budget=0.5,
                    activation_memory_budget_solver=solver,
                    visualize_memory_budget_pareto=True,
                    memory_budget_pareto_dir=folder,
                    enable_autograd_cache=False,
                ),
                mock.patch.object(partitioners, "choose_saved_values_set", choose),
                mock.patch.object(partitioners, "solve_picture_budgets", sweep),
                mock.patch.object(pyplot, "plot") as plot,
                mock.patch.object(pyplot, "annotate"),
                mock.patch.object(
                    partitioners,
                    "_optimize_runtime_with_given_memory",
                    wraps=partitioners._optimize_runtime_with_given_memory,
                ) as solve,
                mock.patch.object(
                    partitioners, "solve_min_cut", wraps=partitioners.solve_min_cut
                ) as cut,
            ):
                torch.compile(model, backend="aot_eager")(x).sum().backward()
                self.assertEqual(len(os.listdir(folder)), 1)
            pyplot.close("all")
            names = [node.name for node in saved]
            return plot.call_args.args, names, solve.call_count, cut.call_count

        for solver in ("dp", "exact"):
            curve, saved, solves, cuts = draw(solver, solve_picture_budgets)
            plain_curve, plain_saved, plain_solves, plain_cuts = draw(
                solver, lambda *args: {}
            )
            self.assertGreater(len(set(curve[0])), 5)
            self.assertEqual(curve, plain_curve)
            self.assertEqual(saved, plain_saved)
            # the plan that is compiled comes from the solver, not from the sweep
            self.assertEqual(solves, 1)
            self.assertGreater(plain_solves, len(set(curve[0])))
            # a cut for each distinct plan; three more choose the strategy before
            self.assertEqual(cuts, plain_cuts)
            self.assertLess(cuts - 3, plain_solves)


if __name__ == "__main__":
    run_tests()
