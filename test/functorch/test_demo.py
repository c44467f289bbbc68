# Owner(s): ["module: functorch"]
"""Tests of the captured instances, of compiling a model under a budget, and of the demo."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch._functorch import partitioners
from torch._functorch._activation_checkpointing import (
    knapsack_exact,
    knapsack_hirschberg,
)
from torch.testing._internal.common_utils import (
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
    TestCase,
)


sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from overlaykit import demo, instances, models, report, solvers
from overlaykit.capture import Capture, compile_step, largest_difference
from overlaykit.cli import UserError


HOME = Path(__file__).resolve().parents[2]
SCRIPTS = HOME / "scripts"
INSTANCES = HOME / "test" / "instances"

# Written by hand: a chain a -> x -> b -> c with a side branch to c's backward.
ARTIFACT: dict[str, Any] = {
    "Joint Graph Size": 6,
    "Joint Graph Edges": {
        "Total": 5,
        "Edges": [["in", "a"], ["a", "x"], ["x", "b"], ["b", "c"], ["c", "grad"]],
    },
    "Joint Graph Node Information": {
        name: {"index": index, "name": name, "stack_trace": "long"}
        for index, name in enumerate(("in", "a", "x", "b", "c", "grad"))
    },
    "Recomputable Banned Nodes Order": ["c", "a", "b"],
    "Expected Runtime": 7,
    "Knapsack Saved Nodes": [1],
    "Knapsack Recomputed Nodes": [2, 0],
    "Absolute Memories": [60, 29, 29],
    "Knapsack Input Memories": [0.6, 0.29, 0.29],
    "Knapsack Input Runtimes": [5, 7, 1],
    "Min Cut Solution Saved Values": ["a"],
    "Memory Budget": 0.29,
    "Min Activation Size (GB)": 20 / 1e9,
    "Max Activation Size (GB)": 120 / 1e9,
    "Saved Values Activation Size (GB)": 49 / 1e9,
    "More Aggressive Saved Values Mem Ratio": 1.0,
    "Aggressive Recomputation Saved Values Mem Ratio": 1.18,
}


def changed(**keys: Any) -> dict[str, Any]:
    """The artifact with some keys (underscores for spaces) replaced, or removed if None."""
    artifact = copy.deepcopy(ARTIFACT)
    for key, value in keys.items():
        name = key.replace("_", " ")
        if value is None:
            del artifact[name]
        else:
            artifact[name] = value
    return artifact


class InFolder(TestCase):
    def setUp(self) -> None:
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, text: str | bytes, name: str = "file.json") -> Path:
        path = self.folder / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def complaint(self, call: Callable[[], object]) -> str:
        with self.assertRaises(UserError) as caught:
            call()
        self.assertNotIn("\n", str(caught.exception))
        return str(caught.exception)


class TestInstances(InFolder):
    def test_reads_every_field(self) -> None:
        (found,) = instances.load(self.write(json.dumps(ARTIFACT)))
        self.assertEqual(found.name, "file")
        self.assertEqual(found.memory, (60, 29, 29))
        self.assertEqual(found.normalized, (0.6, 0.29, 0.29))
        self.assertEqual(found.runtime, (5, 7, 1))
        self.assertEqual((found.min_bytes, found.max_bytes, found.span), (20, 120, 100))
        self.assertEqual(found.saved_values_bytes, 49)
        self.assertEqual(found.candidates, ("c", "a", "b"))
        self.assertEqual(found.nodes, ("in", "a", "x", "b", "c", "grad"))
        self.assertEqual(found.edges[1], ("a", "x"))
        self.assertEqual((found.saved, found.recomputable), ((1,), (2, 0)))
        self.assertEqual(found.classes, 3)

    def test_capacity_reads_the_budget_as_written(self) -> None:
        (found,) = instances.load(self.write(json.dumps(ARTIFACT)))
        # In floats 0.29 * 100 is 28.999999999999996, which would not hold 29 bytes.
        self.assertEqual(found.capacity(), 29)
        self.assertEqual(found.capacity(0.3), 30)
        self.assertEqual(found.capacity(0.999), 99)
        self.assertEqual(found.capacity(0.0), 0)

    def test_weighs_a_plan(self) -> None:
        (found,) = instances.load(self.write(json.dumps(ARTIFACT)))
        solver = solvers.Solver("greedy", "g", None, lambda *_: (0.0, [], []))
        plan = report.weigh(found, solver, [1, 2], 0.0, 0.5)
        self.assertEqual((plan.memory, plan.capacity, plan.over), (58, 50, True))
        self.assertEqual((plan.kept_runtime, plan.recomputed_runtime), (8, 5))
        self.assertFalse(report.weigh(found, solver, [1], 0.0, 0.29).over)

    def test_round_trip(self) -> None:
        small = instances.shrink(ARTIFACT, {"model": "none"})
        path = self.folder / "new" / "small.json"
        instances.save(path, small)
        (found,) = instances.load(path)
        (whole,) = instances.load(self.write(json.dumps(ARTIFACT)))
        for field in (
            "memory",
            "normalized",
            "runtime",
            "budget",
            "candidates",
            "span",
        ):
            self.assertEqual(getattr(found, field), getattr(whole, field))
        # The path from a to c stays, what comes before a and after c goes.
        self.assertEqual(found.nodes, ("a", "x", "b", "c"))
        self.assertEqual(found.edges, (("a", "x"), ("x", "b"), ("b", "c")))
        self.assertEqual(found.meta["model"], "none")
        self.assertNotIn("long", path.read_text())
        self.assertEqual([p.name for p in path.parent.iterdir()], ["small.json"])

    def test_trace_log(self) -> None:
        header = 'V1130 23:56:32.1 6930 torch/x.py:1] {"artifact": {"name": "%s"}}\n'
        pretty = json.dumps(changed(Memory_Budget=0.5), indent=1).replace("\n", "\n\t")
        text = (
            header % "other"
            + '\t{"Knapsack Input Memories": 1}\n'
            + header % "min_cut_information"
            + f"\t{json.dumps(ARTIFACT)}\n"
            + "not a header ] {min_cut_information\n"
            + header % "min_cut_information"
            + f"\t{pretty}\n"
        )
        found = instances.load(self.write(text, "trace.log"))
        self.assertEqual([i.name for i in found], ["trace#0", "trace#1"])
        self.assertEqual([i.budget for i in found], [0.29, 0.5])

    def test_broken_files(self) -> None:
        empty: list[int] = []
        cases: list[tuple[str | bytes, str]] = [
            ("", "no min_cut_information artifact"),
            ("hello\n", "no min_cut_information artifact"),
            ("[]", "no min_cut_information artifact"),
            ('{"a": 1}', "no min_cut_information artifact"),
            ('{"a": ', "broken JSON"),
            ("[" * 100_000, "broken JSON"),
            (b"\xff\xfe\x00", "not a text file"),
        ]
        for keys, wanted in (
            ({"Absolute_Memories": None}, "'Absolute Memories' is missing"),
            ({"Absolute_Memories": [1.5, 2, 3]}, "a list of whole bytes"),
            ({"Absolute_Memories": [1, -2, 3]}, "index 1 is -2"),
            ({"Absolute_Memories": [1, 2]}, "of length 2"),
            ({"Absolute_Memories": "x"}, "a list of finite numbers"),
            ({"Knapsack_Input_Runtimes": [1, 2, float("nan")]}, "index 2 is nan"),
            ({"Knapsack_Input_Runtimes": [1, True, 2]}, "index 1 is True"),
            ({"Knapsack_Input_Memories": empty}, "of length 3"),
            ({"Recomputable_Banned_Nodes_Order": [1, 2, 3]}, "a list of node names"),
            ({"Knapsack_Saved_Nodes": [3]}, "item indices below 3"),
            ({"Memory_Budget": 1.5}, "a number from 0 to 1"),
            ({"Memory_Budget": "x"}, "a number from 0 to 1"),
            ({"Max_Activation_Size_(GB)": 20 / 1e9}, "above the minimum"),
            ({"Joint_Graph_Edges": {"Edges": [["a"]]}}, "pairs of node names"),
            ({"Joint_Graph_Edges": 3}, "pairs of node names"),
            ({"Joint_Graph_Node_Information": {"a": {}}}, "with their index"),
            ({"Capture": 3}, "an object"),
        ):
            cases.append((json.dumps(changed(**keys)), wanted))
        for text, wanted in cases:
            path = self.write(text)
            said = self.complaint(lambda path=path: instances.load(path))
            self.assertTrue(said.startswith(str(path)), said)
            self.assertIn(wanted, said)
        nowhere = self.folder / "nowhere.json"
        self.assertIn("No such file", self.complaint(lambda: instances.load(nowhere)))

    def test_stored_instances_and_their_optima(self) -> None:
        stored = instances.load_all(INSTANCES)
        self.assertGreaterEqual(len({i.meta["model"] for i in stored}), 6)
        optima = json.loads((INSTANCES / "optima.json").read_text())["optima"]
        self.assertEqual(sorted(optima), sorted(i.name for i in stored))
        for instance in stored:
            for memory, weight in zip(instance.memory, instance.normalized):
                self.assertLess(abs(weight * instance.span / memory - 1), 1e-12)
            self.assertEqual(set(instance.candidates) - set(instance.nodes), set())
            self.assertEqual(len(optima[instance.name]), 8)
            order = sorted(
                range(len(instance.memory)),
                key=lambda i: Fraction(instance.runtime[i]) / instance.memory[i],
                reverse=True,
            )
            for budget, (capacity, best, least) in optima[instance.name].items():
                self.assertEqual(capacity, instance.capacity(float(budget)))
                self.assertLessEqual(least, capacity)
                # Between the greedy value and Dantzig's bound, both computed here exactly.
                room, greedy, bound, split = capacity, 0, Fraction(0), False
                for item in order:
                    memory, runtime = instance.memory[item], instance.runtime[item]
                    if memory <= room:
                        room -= memory
                        greedy += int(runtime)
                        bound += 0 if split else int(runtime)
                    elif not split:
                        split = True
                        bound += Fraction(int(runtime) * room, memory)
                self.assertLessEqual(greedy, best)
                self.assertLessEqual(best, bound)


class TestCompile(TestCase):
    """The config value really reaches the overlay's module, and training is unchanged."""

    workload: models.Workload
    baseline: Capture

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        torch.set_num_threads(1)
        cls.workload = models.build("llama", 2)
        cls.baseline = compile_step(cls.workload, 1.0)

    @parametrize(
        "name, module, function",
        [
            ("hirschberg", knapsack_hirschberg, "dp_knapsack_sliding_hirschberg"),
            ("exact", knapsack_exact, "exact_knapsack"),
        ],
        name_fn=lambda name, module, function: name,
    )
    def test_end_to_end(self, name: str, module: Any, function: str) -> None:
        solver = solvers.get(name)
        self.assertIs(getattr(partitioners, function), getattr(module, function))
        with mock.patch.object(
            partitioners, function, wraps=getattr(module, function)
        ) as called:
            step = compile_step(self.workload, 0.3, solver)
        self.assertEqual(called.call_count, 1)
        (instance,) = step.instances
        memory, runtime, budget = called.call_args.args
        self.assertEqual((tuple(memory), budget), (instance.normalized, 0.3))
        self.assertEqual(tuple(runtime), instance.runtime)
        self.assertEqual(largest_difference(step, self.baseline), 0.0)
        plan = report.weigh(instance, solver, instance.saved, None, 0.3)
        self.assertGreater(plan.memory, 0.9 * plan.capacity)
        self.assertGreater(step.recomputed_flops, 0)
        self.assertEqual(self.baseline.recomputed_flops, 0)
        # Beside the plan the minimum cut keeps the flattened targets: 2 x 128 int64.
        self.assertLessEqual(step.saved_bytes - plan.memory, 2 * 128 * 8)
        self.assertLess(step.saved_bytes, self.baseline.saved_bytes / 2)
        if name == "exact":
            self.assertFalse(plan.over)

    def test_shipped_solver_takes_the_place_of_the_configured_one(self) -> None:
        calls: list[float] = []

        def keep_nothing(
            memory: list[float], runtime: list[float], budget: float
        ) -> tuple[float, list[int], list[int]]:
            calls.append(budget)
            return 0.0, [], list(range(len(memory)))

        step = compile_step(
            self.workload, 0.3, solvers.Solver("none", "none", None, keep_nothing)
        )
        self.assertEqual(calls, [0.3])
        self.assertEqual(step.instances[0].saved, ())
        self.assertLessEqual(step.saved_bytes, 2 * 128 * 8)
        self.assertEqual(largest_difference(step, self.baseline), 0.0)

    def test_a_difference_is_seen(self) -> None:
        other = compile_step(models.build("llama", 2, seed=1), 1.0)
        self.assertGreater(largest_difference(other, self.baseline), 1e-3)

    def test_no_knapsack_where_the_minimum_cut_suffices(self) -> None:
        self.assertEqual(compile_step(self.workload, 0.95).instances, ())


instantiate_parametrized_tests(TestCompile)


class TestModels(TestCase):
    def test_all_families_train(self) -> None:
        for name in models.MODELS:
            work = models.build(name, 4)
            loss = work.module(*work.inputs)
            loss.backward()
            self.assertTrue(torch.isfinite(loss), name)
            for parameter in work.module.parameters():
                self.assertIsNotNone(parameter.grad, name)

    def test_a_seed_gives_the_same_model_and_leaves_the_generator(self) -> None:
        before = torch.get_rng_state()
        one, two = models.build("mlp", 2), models.build("mlp", 2)
        self.assertEqual(torch.get_rng_state(), before)
        self.assertEqual(one.inputs, two.inputs)
        self.assertEqual(one.module.state_dict(), two.module.state_dict())

    def test_errors(self) -> None:
        with self.assertRaisesRegex(UserError, "^model: 'x' is not one of llama, gpt2"):
            models.build("x")
        with self.assertRaisesRegex(UserError, "^layers: 0 is not 1 or more$"):
            models.build("mlp", 0)


class TestSolvers(TestCase):
    def test_upstreams_are_the_shipped_ones(self) -> None:
        # Upstream issue 197871, which the overlay's patch mends in the running torch.
        shipped = solvers.get("hirschberg-shipped").call([1e-4] * 3, [1.0] * 3, 1e-4)
        self.assertEqual(len(shipped[1]), 2)
        ours = solvers.get("hirschberg").call([1e-4] * 3, [1.0] * 3, 1e-4)
        self.assertEqual(len(ours[1]), 1)

    def test_a_missing_module_is_one_line(self) -> None:
        with mock.patch.object(solvers.importlib.util, "find_spec", return_value=None):
            self.assertEqual(
                solvers.available(), ["dp", "hirschberg-shipped", "greedy"]
            )
            with self.assertRaisesRegex(
                UserError, "^solver 'exact': not in this torch"
            ):
                solvers.get("exact")


class TestCommands(InFolder):
    """The demo and the replay as a user starts them, on the smallest model."""

    def start(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        # As scripts/demo does once setup is done; the tests must not make an environment.
        code = f"import sys; sys.path.insert(0, {str(SCRIPTS)!r}); {script}"
        return subprocess.run(
            [sys.executable, "-I", "-c", code, *arguments],
            capture_output=True,
            text=True,
            cwd=self.folder,
        )

    def demo(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.start("from overlaykit.demo import run; run()", *arguments)

    def test_demo_json(self) -> None:
        done = self.demo(
            "--model=mlp", "--layers=3", "--budget=0.3", "--json", "--output=a.png"
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        found = json.loads(done.stdout)
        self.assertEqual(
            (found["model"], found["layers"], found["items"]), ("mlp", 3, 5)
        )
        self.assertEqual([p["solver"] for p in found["plans"]], solvers.available())
        for plan in found["plans"]:
            self.assertEqual(plan["difference_to_budget_1"], 0.0)
            self.assertEqual(plan["budget_bytes"], int(0.3 * found["span_bytes"]))
        self.assertFalse(found["plans"][-1]["over_budget"])
        self.assertEqual((self.folder / "a.png").read_bytes()[:4], b"\x89PNG")
        self.assertEqual([p.name for p in self.folder.iterdir()], ["a.png"])

    def test_demo_table(self) -> None:
        done = self.demo(
            "--model=mlp", "--layers=3", "--budget=0.3", "--solver=exact",
            "--solver=dp", "--output=a.svg",
        )  # fmt: skip
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("5 items, 5 distinct; budget 0.3 = 630,824 bytes", done.stdout)
        lines = [line for line in done.stdout.splitlines() if "same bits" in line]
        self.assertEqual(len(lines), 2)
        self.assertIn("exact, overlay", lines[0])
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 100)

    def test_demo_says_that_gradients_differ(self) -> None:
        with mock.patch("overlaykit.capture.largest_difference", return_value=0.5):
            with mock.patch("builtins.print") as printed:
                status = demo.main(
                    ["--model=mlp", "--layers=2", "--budget=0.2", "--solver=exact",
                     "--json", f"--output={self.folder / 'a.png'}"]
                )  # fmt: skip
        self.assertEqual(status, 1)
        self.assertIn("exact: loss or gradients differ", printed.call_args.args[0])

    def test_demo_errors(self) -> None:
        for arguments, wanted in (
            (["--model=x"], "model: 'x' is not one of"),
            (["--layers=-1"], "layers: -1 is not 1 or more"),
            (["--solver=x"], "solver: 'x' is not one of dp, "),
            (["--budget=1"], "--budget: 1 is not above 0 and below 1"),
            (["--budget=nan"], "--budget: nan is not above 0 and below 1"),
            (["--backend=x"], "--backend: 'x' is not one of aot_eager, inductor"),
            (["--output=a.xyz"], "--output: a.xyz does not end in one of"),
            ([f"--output={__file__}/a.png"], "is not a folder"),
            (
                ["--model=mlp", "--layers=2", "--budget=0.9", "--solver=dp"],
                "poses no knapsack",
            ),
        ):
            said = self.complaint(lambda arguments=arguments: demo.main(arguments))
            self.assertIn(wanted, said)
        done = self.demo("--budget=2")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "error: --budget: 2 is not above 0 and below 1\n")

    def test_demo_list(self) -> None:
        done = self.demo("--list")
        self.assertEqual(done.returncode, 0)
        for name in (*models.MODELS, *solvers.NAMES):
            self.assertIn(f"  {name} ", done.stdout)

    def test_replay(self) -> None:
        path = self.write(json.dumps(ARTIFACT))
        script = "from overlaykit import cli, replay; cli.run(replay.main)"
        arguments = (str(path), "--solver=exact", "--solver=greedy", "--output=out")
        done = self.start(script, *arguments, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        (found,) = json.loads(done.stdout)
        self.assertEqual((found["items"], found["budget"]), (3, 0.29))
        plans = {p["solver"]: p for p in found["plans"]}
        self.assertEqual(list(plans), ["recorded", "exact", "greedy"])
        # Item 1 alone, 29 bytes for 7, fills the budget of 29 bytes.
        self.assertEqual(plans["exact"]["plan_bytes"], 29)
        self.assertEqual(plans["exact"]["flops_recomputed"], 6)
        self.assertTrue((self.folder / "out" / "replay-file.png").is_file())

    def test_replay_of_a_failing_solver(self) -> None:
        # Upstream's greedy divides by the size.
        path = self.write(json.dumps(changed(Absolute_Memories=[60, 29, 0],
                                             Knapsack_Input_Memories=[0.6, 0.29, 0.0])))  # fmt: skip
        done = self.start(
            "from overlaykit import cli, replay; cli.run(replay.main)",
            str(path), "--solver=greedy", "--solver=exact", "--output=out", "--budget=1",
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("budget 1 = 100 bytes", done.stdout)
        self.assertIn("greedy: ZeroDivisionError", done.stdout)

    def test_replay_error(self) -> None:
        path = self.write("hello")
        done = self.start(
            "from overlaykit import cli, replay; cli.run(replay.main)", str(path)
        )
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(
            done.stderr,
            f"error: {path}: no min_cut_information artifact of PyTorch's partitioner;"
            " a run records one with AOT_PARTITIONER_DEBUG=1, if its budget poses a"
            " knapsack\n",
        )


if __name__ == "__main__":
    run_tests()
