# Owner(s): ["module: functorch"]
"""
What a user gets wrong about the activation memory budget is said at partition time, in
one error that names the option and what it accepts.
"""

import inspect
import math
import re

import torch
import torch._functorch.config as functorch_config
from torch._functorch import partitioners
from torch._functorch._activation_checkpointing.memory_budget_options import (
    check_budget_options,
    SOLVERS,
)
from torch._functorch._activation_checkpointing.plan_check import check_plan
from torch._functorch.aot_autograd import aot_function
from torch._inductor.custom_graph_pass import CustomKnapsackSolver
from torch.testing._internal.common_utils import (
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
    TestCase,
)


class Plan(CustomKnapsackSolver):
    """Answers with what `plan` makes of the number of candidates."""

    def __init__(self, plan):
        self.plan = plan

    def __call__(
        self, memory, joint_graph, max_memory, node_info, all_recomputable_banned_nodes
    ):
        self.candidates = [node.name for node in all_recomputable_banned_nodes]
        return self.plan(len(memory))

    def uuid(self):
        return None


def loss(x, weight):
    for _ in range(4):
        x = torch.relu(x @ weight)
    return x.sum()


def backward_of(**config):
    """The targets of the backward graph that `loss` is given under a configuration."""
    graphs = []

    def look(module, inputs):
        graphs.append(module.graph)
        return module.forward

    torch._dynamo.reset()
    x, weight = torch.ones(8, 8), torch.ones(8, 8, requires_grad=True)
    with functorch_config.patch(enable_autograd_cache=False, **config):
        aot_function(
            loss,
            fw_compiler=look,
            bw_compiler=look,
            partition_fn=partitioners.min_cut_rematerialization_partition,
        )(x, weight).backward()
    return [node.target for node in graphs[1].nodes if node.op == "call_function"]


class TestBudget(TestCase):
    @parametrize(
        "budget",
        [math.nan, math.inf, -math.inf, -0.1, 1.0001, "0.5", None, [0.5], 0.5j],
    )
    def test_refused(self, budget):
        message = rf"activation_memory_budget must be a number from 0 .* to 1 .*{re.escape(repr(budget))}"
        with self.assertRaisesRegex(RuntimeError, message):
            backward_of(activation_memory_budget=budget)

    @parametrize("budget", [0, 1, 0.0, 1.0, True, 5e-324, 1 - 2**-53])
    def test_accepted(self, budget):
        backward_of(activation_memory_budget=budget)

    def test_through_torch_compile(self):
        config = functorch_config.patch(
            activation_memory_budget="0.5", enable_autograd_cache=False
        )
        weight = torch.ones(8, 8, requires_grad=True)
        with config, self.assertRaisesRegex(Exception, "must be a number from 0"):
            torch.compile(loss, backend="aot_eager")(torch.ones(8, 8), weight)


class TestSolver(TestCase):
    @parametrize("solver", ["dpp", "", None, math.nan, Plan])
    def test_refused(self, solver):
        with self.assertRaisesRegex(
            RuntimeError,
            "Not aware of memory budget knapsack solver.*"
            "activation_memory_budget_solver must be one of 'dp', .*CustomKnapsackSolver",
        ):
            backward_of(
                activation_memory_budget=0.3, activation_memory_budget_solver=solver
            )

    def test_not_looked_at_where_there_is_nothing_to_solve(self):
        backward_of(activation_memory_budget=1, activation_memory_budget_solver="dpp")

    def test_the_names_are_those_of_the_partitioner(self):
        source = inspect.getsource(partitioners._optimize_runtime_with_given_memory)
        self.assertEqual(
            sorted(SOLVERS), sorted(re.findall(r'SOLVER == "(\w+)"', source))
        )

    @parametrize("solver", SOLVERS)
    def test_accepted(self, solver):
        check_budget_options(0.3, solver)


PLANS = {
    "twice": (lambda n: ([0, *range(n)], []), "index 0 is there twice"),
    "in_both": (lambda n: (list(range(n)), [1]), "index 1 is there twice"),
    "missing": (lambda n: ([], list(range(1, n))), "index 0 is missing"),
    "beyond": (lambda n: ([], list(range(n + 1))), "recomputed index 4 is out of"),
    "negative": (lambda n: ([-1], list(range(n - 1))), "saved index -1 is out of"),
    "float": (
        lambda n: ([0.0], list(range(1, n))),
        "saved index 0.0 is not an int",
    ),
    "none": (lambda n: ([], [None]), "recomputed index None is not an integer"),
}


class TestPlan(TestCase):
    @parametrize("name", list(PLANS))
    def test_refused(self, name):
        plan, fault = PLANS[name]
        with self.assertRaisesRegex(
            RuntimeError,
            f"activation_memory_budget_solver Plan is wrong: .*{fault}.* from 0 to 3 once",
        ):
            backward_of(
                activation_memory_budget=0.3, activation_memory_budget_solver=Plan(plan)
            )

    def test_a_right_plan_is_followed(self):
        matmul = torch.ops.aten.mm.default
        for recomputed in range(5):
            solver = Plan(lambda n, k=recomputed: (range(k, n), range(k)))
            targets = backward_of(
                activation_memory_budget=0.3, activation_memory_budget_solver=solver
            )
            self.assertEqual(len(solver.candidates), 4)
            # Of 4 products the backward takes 7, as x needs no gradient.
            self.assertEqual(targets.count(matmul), 7 + recomputed)

    def test_other_integers_are_integers(self):
        check_plan(torch.arange(2), [True + 1], 3, "dp")

    def test_no_candidates(self):
        check_plan([], [], 0, "dp")


instantiate_parametrized_tests(TestBudget)
instantiate_parametrized_tests(TestSolver)
instantiate_parametrized_tests(TestPlan)


if __name__ == "__main__":
    run_tests()
