# Owner(s): ["module: functorch"]
"""
Some seconds of scripts/fuzz.py on each of the overlay's solvers, and the fuzzer itself:
that it finds what is put in, makes it small, and writes a test that fails for it.
"""

import contextlib
import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

from torch.testing._internal.common_utils import (
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
    TestCase,
)


sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from overlaykit import fuzz, solvers
from overlaykit.cli import UserError


exact = solvers.get("exact").call


def swapped(make):
    """A solver that answers what `make` does with exact's answer and the arguments."""

    def solver(memory, runtime, budget):
        return make(*exact(memory, runtime, budget), memory, runtime, budget)

    return solver


def drop_last(kept, saved, recomputable, memory, runtime, budget):
    if len(saved) < 3:
        return kept, saved, recomputable
    left = saved[:-1]
    rest = sorted(set(range(len(memory))) - set(left), reverse=True)
    return sum(runtime[i] for i in left), left, rest


def keep_all(kept, saved, recomputable, memory, runtime, budget):
    return sum(runtime), list(range(len(memory))), []


BROKEN = {
    "maximal": drop_last,
    "budget": keep_all,
    "complete": lambda kept, saved, rest, *_: (kept, saved, rest[1:]),
    "order": lambda kept, saved, rest, *_: (kept, saved[::-1], rest),
    "value": lambda kept, saved, rest, *_: (kept * 1.0001, saved, rest),
    "error": lambda kept, saved, rest, memory, *_: 1 / (len(memory) != 3),
}


class TestFuzz(TestCase):
    @parametrize("name", fuzz.SOLVERS)
    def test_nothing_is_found(self, name):
        outcome = fuzz.run([name], seconds=5, seed=20)
        self.assertEqual([found.fault for found in outcome.found], [])
        self.assertGreater(outcome.tried[name], len(fuzz.FAMILIES))

    @parametrize("rule", list(BROKEN))
    def test_what_is_put_in_is_found_and_made_small(self, rule):
        with mock.patch.object(fuzz, "SHRINK_S", 2):
            outcome = fuzz.run(
                ["exact"], 3, seed=1, calls={"exact": swapped(BROKEN[rule])}
            )
        found = {found.fault.rule: found for found in outcome.found}
        self.assertIn(rule, found)
        self.assertLessEqual(len(found[rule].case.memory), 4)

    def test_bad_arguments_that_pass_are_found(self):
        def lax(memory, runtime, budget):
            try:
                return exact(memory, runtime, budget)
            except ValueError:
                return 0.0, [], list(reversed(range(len(memory))))

        outcome = fuzz.run(["exact"], 1, seed=1, calls={"exact": lax})
        self.assertEqual({found.fault.rule for found in outcome.found}, {"refusal"})

    def test_an_instance_depends_on_the_seed_and_the_number_alone(self):
        for number in range(40):
            case = fuzz.instance("exact", 3, number)
            self.assertEqual(case, fuzz.instance("exact", 3, number))
        self.assertNotEqual(fuzz.instance("exact", 4, 0), fuzz.instance("exact", 3, 0))

    def test_shrinking_keeps_what_matters(self):
        case = fuzz.Case([0.123456, 7.5, 3.25] * 9, [1.0] * 27, 0.987654)
        small = fuzz.shrink(case, lambda c: 7.5 in c.memory and c.budget > 0.9)
        self.assertEqual(small, fuzz.Case([7.5], [1.0], 1.0))

    def test_the_written_test_fails_while_the_fault_is_there(self):
        case = fuzz.Case([0.5, 1e-300], [2.0, 3.0], float("inf"))
        found = fuzz.Found("exact", case, fuzz.Fault("budget", "all of it"), 5, 7)
        text = fuzz.as_test(found)
        for broken, status in (("", 0), ("solvers.get = lambda name: Broken", 1)):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "test" / "functorch" / "test_found.py"
                path.parent.mkdir(parents=True)
                (Path(folder) / "scripts").symlink_to(
                    Path(fuzz.__file__).resolve().parents[1]
                )
                path.write_text(
                    text.replace(
                        "\n\nclass TestFound",
                        "\n\nclass Broken:\n"
                        "    call = staticmethod(lambda m, r, b: (0.0, [], [1, 0]))\n"
                        f"\n\n{broken}\n\n\nclass TestFound",
                    )
                )
                # Under CI torch's run_tests wants a reporter that is not needed here.
                environment = {k: v for k, v in os.environ.items() if k != "CI"}
                done = subprocess.run(
                    [sys.executable, str(path)],
                    env=environment,
                    capture_output=True,
                    text=True,
                )
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertEqual("greedy" in done.stderr, bool(status))

    def test_command_line(self):
        with tempfile.TemporaryDirectory() as folder:
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                status = fuzz.main(["--seconds=0.5", f"--output={folder}"])
            self.assertEqual(status, 0)
            self.assertRegex(said.getvalue(), r"exact: [1-9]\d* instances, no faults")
            self.assertEqual(list(Path(folder).iterdir()), [])

            broken = mock.Mock(call=swapped(keep_all))
            with (
                mock.patch.object(solvers, "get", lambda name: broken),
                contextlib.redirect_stdout(said),
            ):
                arguments = ["--seconds=1", "--solver=exact", f"--output={folder}"]
                self.assertEqual(fuzz.main(arguments), 1)
            written = [path.name for path in Path(folder).iterdir()]
            self.assertIn("test_fuzz_exact_budget", "".join(written))

    def test_mistakes_on_the_command_line(self):
        for argument in ("--seconds=0", "--seconds=nan", "--output=/nowhere/at/all"):
            with self.assertRaisesRegex(UserError, argument.partition("=")[0]):
                fuzz.main([argument])


instantiate_parametrized_tests(TestFuzz)


if __name__ == "__main__":
    run_tests()
