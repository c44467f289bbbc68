"""Try the overlay's solvers on random and hostile instances, for a number of seconds.

Each plan is held against the solvers' contract and, on small instances, against every
subset in whole numbers: floats are read as the fractions that they are. A case that
fails is made smaller while it fails in the same way, and written as a test file.

Exit status: 0 if nothing was found, 1 if something was.
"""

from __future__ import annotations

import argparse
import logging
import math
import random
import re
import sys
import textwrap
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from overlaykit import solvers
from overlaykit.cli import UserError
from overlaykit.instances import write_whole
from overlaykit.solvers import Call


ROOT = Path(__file__).resolve().parents[2]
SOLVERS = ("exact", "hirschberg")
QUANTA = 10_000  # of the quantized solver, in a unit of memory
LARGEST = sys.float_info.max
ENUMERATED = 12  # items whose subsets are all tried
TABLE = 200_000  # steps of the table for whole sizes that is made beyond that
# What an exact solver says when it stops before the proof.
GAP = re.compile(r"within a fraction of (\S+) of the optimum")
LARGE_EVERY = 1999  # one instance of so many has more than 200 items
SLOW_S = 60.0  # a solver that takes longer is as good as hanging
SHRINK_S = 20.0


class Case(NamedTuple):
    """One call of a solver."""

    memory: list[float]
    runtime: list[float]
    budget: float


class Fault(NamedTuple):
    """What is wrong with an answer: the rule it breaks, which stays the same while the
    case shrinks, and how."""

    rule: str
    detail: str


# --- instances ---


def _total(numbers: Iterable[float]) -> float:
    try:
        return math.fsum(numbers)
    except OverflowError:
        return LARGEST


def _budget(rng: random.Random, memory: Sequence[float]) -> float:
    """Mostly a part of all sizes; at times a sum of some of them, to the last bit."""
    kind = rng.random()
    if kind < 0.25:
        return _total(size for size in memory if rng.random() < 0.5)
    if kind < 0.3:
        return rng.choice([0.0, 5e-324, 1.0, math.inf, LARGEST])
    return _total(memory) * rng.random()


def _uniform(rng: random.Random, n: int) -> tuple[list[float], list[float]]:
    return [rng.random() for _ in range(n)], [rng.random() for _ in range(n)]


def _layers(rng: random.Random, n: int) -> tuple[list[float], list[float]]:
    """As real graphs: few classes, flops, and items of runtime 1 beside them."""
    classes = [
        (2 ** rng.randint(3, 20) * rng.choice([1, 3, 5, 11]), 2 ** rng.randint(10, 26))
        for _ in range(rng.randint(1, 6))
    ] + [(8, 1), (1024, 1)]
    drawn = [rng.choice(classes) for _ in range(n)]
    span = sum(size for size, _ in drawn) * rng.uniform(0.9, 1.5)
    return [size / span for size, _ in drawn], [float(flops) for _, flops in drawn]


def _equal_ratios(rng: random.Random, n: int) -> tuple[list[float], list[float]]:
    sizes = [float(rng.randint(1, 1000)) for _ in range(n)]
    ratio = rng.choice([1.0, 3.0, 0.1, 1e9])
    return sizes, [size * ratio for size in sizes]


def _nearly_equal_ratios(rng: random.Random, n: int) -> tuple[list[float], list[float]]:
    """Hostile to the bound: it tells next to nothing."""
    sizes = [float(rng.randint(900, 1100)) for _ in range(n)]
    return sizes, [size + rng.choice([-1, 0, 1]) * 2.0**-20 for size in sizes]


def _correlated(rng: random.Random, n: int) -> tuple[list[float], list[float]]:
    sizes = [float(rng.randint(1, 300)) for _ in range(n)]
    return sizes, [size + 30 for size in sizes]


def _decimals(rng: random.Random, n: int) -> tuple[list[float], list[float]]:
    """Sums that fill the budget in decimals, but not in floats."""
    sizes = [rng.choice([0.1, 0.2, 0.3, 0.7]) for _ in range(n)]
    return sizes, [float(rng.randint(1, 3)) for _ in range(n)]


def _denormals(rng: random.Random, n: int) -> tuple[list[float], list[float]]:
    def number() -> float:
        return rng.choice([5e-324, 1e-323, 2.2e-308, 1e-310]) * rng.randint(0, 3)

    return [number() for _ in range(n)], [number() for _ in range(n)]


def _extremes(rng: random.Random, n: int) -> tuple[list[float], list[float]]:
    def number() -> float:
        return rng.choice([0.0, 1e-308, 1e308, LARGEST, 1.0, 5e-324, 1e-4])

    signs = [1, 1, -1]
    return [number() for _ in range(n)], [
        rng.choice(signs) * number() for _ in range(n)
    ]


def _zeros(rng: random.Random, n: int) -> tuple[list[float], list[float]]:
    memory, runtime = _uniform(rng, n)
    which = rng.randint(0, 2)
    return [0.0] * n if which != 1 else memory, [0.0] * n if which != 0 else runtime


def _alternating(rng: random.Random, n: int) -> tuple[list[float], list[float]]:
    low, high = 10.0 ** -rng.randint(1, 15), 10.0 ** rng.randint(0, 2)
    sizes = [(low, high)[i % 2] * rng.uniform(1, 2) for i in range(n)]
    return sizes, [(high, low)[i // 2 % 2] * rng.uniform(1, 2) for i in range(n)]


def _more_than_half(rng: random.Random, n: int) -> tuple[list[float], list[float]]:
    """Hostile to greedy starts: one light item of the best ratio spoils the large one."""
    sizes = [rng.choice([0.5001, 0.4999, 0.01, 0.25]) for _ in range(n)]
    return sizes, [size * (1 + rng.random() / 100) for size in sizes]


def _wide(rng: random.Random, n: int) -> tuple[list[float], list[float]]:
    sizes = [10 ** rng.uniform(-12, 1) for _ in range(n)]
    return sizes, [10 ** rng.uniform(-12, 12) for _ in range(n)]


Family = Callable[[random.Random, int], tuple[list[float], list[float]]]
FAMILIES: tuple[Family, ...] = (
    _uniform,
    _layers,
    _equal_ratios,
    _nearly_equal_ratios,
    _correlated,
    _decimals,
    _denormals,
    _extremes,
    _zeros,
    _alternating,
    _more_than_half,
    _wide,
)


def instance(name: str, seed: int, number: int) -> Case:
    """The instance of this number for the solver `name`; mostly small enough to try
    every subset, at times with up to a million items."""
    rng = random.Random(f"{seed} {number}")
    n = rng.randint(0, ENUMERATED)
    if rng.random() < 0.2:
        n = rng.randint(ENUMERATED, 200)
    if number % LARGE_EVERY == LARGE_EVERY - 1:
        n = 10 ** rng.randint(4, 6)
    memory, runtime = FAMILIES[number % len(FAMILIES)](rng, n)
    case = Case(memory, runtime, _budget(rng, memory))
    return _affordable(case) if name == "hirschberg" else case


def _affordable(case: Case) -> Case:
    """The quantized solver's time grows with items times budget: scale both down."""
    most = min(10.0, 1e9 / QUANTA / max(1, len(case.memory)))
    if most < case.budget < math.inf:
        halvings = math.ceil(math.log2(case.budget) - math.log2(most))
        *memory, budget = (
            math.ldexp(x, -halvings) for x in (*case.memory, case.budget)
        )
        return Case(memory, case.runtime, budget)
    return case


# --- the contract ---


def _whole(numbers: Sequence[float]) -> tuple[list[int], int]:
    """The numbers times their least common denominator, as ints; and that number."""
    fractions = [Fraction(number) for number in numbers]
    scale = max((fraction.denominator for fraction in fractions), default=1)
    return [int(fraction * scale) for fraction in fractions], scale


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """What the solvers log: an exact solver may give up proving, and says so."""
    said: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    logger = logging.getLogger("torch._functorch._activation_checkpointing")
    handler, propagate = Keep(logging.WARNING), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield said
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


def _best_subset(sizes: list[int], values: list[int], capacity: int) -> tuple[int, int]:
    """The greatest value, and the least size that has it."""
    reachable = [(0, 0)]
    for size, value in zip(sizes, values):
        if value > 0 and size <= capacity:
            more = [(s + size, v + value) for s, v in reachable]
            reachable += [state for state in more if state[0] <= capacity]
    value, size = max((value, -size) for size, value in reachable)
    return value, -size


def _best_by_table(sizes: list[int], values: list[int], capacity: int) -> int:
    row = [0] * (capacity + 1)
    for size, value in zip(sizes, values):
        if value > 0:
            for room in range(capacity, size - 1, -1):
                row[room] = max(row[room], row[room - size] + value)
    return row[capacity]


def _best(sizes: list[int], values: list[int], capacity: int) -> int | None:
    """The optimum, by a way that needs no cleverness; None if that takes too long."""
    if len(sizes) <= ENUMERATED:
        return _best_subset(sizes, values, capacity)[0]
    divisor = math.gcd(*sizes) or 1
    if capacity // divisor * len(sizes) <= TABLE:
        return _best_by_table(
            [s // divisor for s in sizes], values, capacity // divisor
        )
    return None


def _bounds(sizes: list[int], values: list[int], capacity: int) -> tuple[int, Fraction]:
    """What taking items by ratio keeps, and what no plan can pass (Dantzig's bound)."""
    kept, room, bound, cut = 0, capacity, Fraction(0), False
    items = [i for i, value in enumerate(values) if value > 0 and sizes[i] <= capacity]
    free = [i for i in items if sizes[i] == 0]
    others = [i for i in items if sizes[i]]
    others.sort(key=lambda i: Fraction(values[i], sizes[i]), reverse=True)
    for i in free + others:
        if not cut and sizes[i] > room:
            bound, cut = kept + Fraction(values[i] * room, sizes[i]), True
        if sizes[i] <= room:
            kept, room = kept + values[i], room - sizes[i]
    return kept, bound if cut else Fraction(kept)


def _quantize(size: float) -> int | None:
    """None: beyond any capacity, as its product is not a float any more."""
    product = size * QUANTA
    return None if math.isinf(product) else round(product)


class _Problem(NamedTuple):
    """A case in the whole numbers in which the solver is to be right."""

    sizes: list[int]
    values: list[int]
    capacity: int
    tolerated: int  # the same with the contract's 1e-12, for sizes that fill it exactly
    value_scale: int
    slack: Fraction  # of a value: float64 totals of the quantized solver


def _problem(name: str, case: Case) -> _Problem:
    values, value_scale = _whole(case.runtime)
    if name == "hirschberg":
        rounded = [_quantize(size) for size in case.memory]
        finite = sum(size for size in rounded if size is not None)
        budget = _quantize(case.budget) if math.isfinite(case.budget) else None
        capacity = finite if budget is None else budget
        sizes = [capacity + 1 if size is None else size for size in rounded]
        if budget is None:
            capacity = sum(sizes)
        slack = Fraction(1, 10**9)
        return _Problem(sizes, values, capacity, capacity, value_scale, slack)
    everything = math.isinf(case.budget)
    numbers, _ = _whole([*case.memory, 0.0 if everything else case.budget])
    sizes, capacity = numbers[:-1], numbers[-1]
    if everything:
        capacity = sum(sizes)
    tolerated = capacity + capacity // 10**12
    return _Problem(sizes, values, capacity, tolerated, value_scale, Fraction(0))


def faults(name: str, call: Call, case: Case) -> Iterator[Fault]:
    """Every rule of the contract that the solver's answer to `case` breaks."""
    memory, runtime, budget = case
    begin = time.perf_counter()
    try:
        with _warnings() as warned:
            kept, saved, recomputable = call(list(memory), list(runtime), budget)
    except Exception as error:
        yield Fault("error", f"{type(error).__name__}: {error}")
        return
    took = time.perf_counter() - begin
    if took > SLOW_S:
        yield Fault("time", f"{took:.0f} s")
    if sorted([*saved, *recomputable]) != list(range(len(memory))):
        yield Fault("complete", f"saved {saved}, recomputable {recomputable}")
        return
    if saved != sorted(saved) or recomputable != sorted(recomputable, reverse=True):
        yield Fault("order", f"saved {saved}, recomputable {recomputable}")

    sizes, values, capacity, tolerated, scale, slack = _problem(name, case)
    if warned:  # a plan that is not proven optimal comes with what it may miss
        gap = max(map(float, GAP.findall(warned[-1])), default=0.0)
        slack = Fraction(gap) * 101 / 100 or slack
    used = sum(sizes[i] for i in saved)
    value = sum(values[i] for i in saved)
    if used > tolerated:
        yield Fault("budget", f"uses {used} of {capacity}")
    told = Fraction(value, scale)
    if isinstance(kept, float) and not math.isfinite(kept):
        right = kept == math.inf and told > LARGEST
    else:
        right = abs(Fraction(kept) - told) <= told / 10**9
    if not right:
        yield Fault("value", f"says {kept!r}, not the sum of its items")
    in_plan = set(saved)
    for i, (size, worth) in enumerate(zip(sizes, values)):
        if worth <= 0 and i in in_plan:
            yield Fault("worthless", f"item {i} is saved")
            break
        if worth > 0 and size == 0 and i not in in_plan:
            yield Fault("free", f"item {i} is recomputed")
            break
        if worth > 0 and i not in in_plan and used + size <= capacity and not slack:
            yield Fault("maximal", f"item {i} still fits")
            break

    if len(memory) > 1000:
        return
    greedy, _ = _bounds(sizes, values, capacity)
    _, most = _bounds(sizes, values, tolerated)
    best = _best(sizes, values, capacity)
    if value > most * (1 + slack):
        yield Fault("bound", f"{value} beyond {most}")
    if value < greedy * (1 - slack):
        yield Fault("greedy", f"{value} where taking by ratio keeps {greedy}")
    if best is not None and value < best * (1 - slack):
        yield Fault("optimal", f"{value} of {best}")

    if len(memory) <= ENUMERATED and not slack and used <= capacity:
        least = _best_subset(sizes, values, capacity)
        # Sizes that differ by less than the tolerance count as equal.
        if value == least[0] and used - least[1] > tolerated - capacity:
            yield Fault("tie", f"{used} in size for a value that takes {least[1]}")

    if warned:
        return
    if call(list(memory), list(runtime), budget) != (kept, saved, recomputable):
        yield Fault("deterministic", "a second call differs")
    order = list(range(len(memory)))
    random.Random(0).shuffle(order)
    _, other, _ = call([memory[i] for i in order], [runtime[i] for i in order], budget)
    shuffled = sum(values[order[i]] for i in other)
    if abs(shuffled - value) > value * slack:
        yield Fault("permutation", f"{value}, shuffled {shuffled}")


def refusals(name: str, call: Call, case: Case, rng: random.Random) -> Iterator[Fault]:
    """Breaks one argument of `case`: the answer must be a ValueError that names it."""
    memory, runtime, budget = list(case.memory), list(case.runtime), case.budget
    which = rng.choice(
        ["memory", "runtime", "budget", "length"] if memory else ["budget"]
    )
    wrong = rng.choice([math.nan, math.inf, -math.inf])
    if which == "budget":
        budget, expected = rng.choice([math.nan, -math.inf, -1e-300]), "max_memory"
    elif which == "length":
        memory, expected = memory[:-1], "memory"
    else:
        index = rng.randrange(len(memory))
        if which == "memory":
            memory[index] = rng.choice([wrong, -5e-324])
        else:
            runtime[index] = wrong
        expected = f"{which}[{index}]"
    try:
        call(memory, runtime, budget)
    except ValueError as error:
        if expected not in str(error):
            yield Fault("refusal", f"{expected} is not named in: {error}")
    except Exception as error:
        yield Fault("refusal", f"{type(error).__name__}: {error}")
    else:
        yield Fault("refusal", f"{which} passed: {memory!r}, {runtime!r}, {budget!r}")


# --- making a failing case small ---


@dataclass
class Found:
    """One fault, as it was found and as it was made smaller."""

    solver: str
    case: Case
    fault: Fault
    seed: int
    number: int


Fails = Callable[[Case], bool]


def _simpler(number: float) -> Iterator[float]:
    candidates = [0.0, 1.0]
    if math.isfinite(number):
        candidates += [float(f"{number:.{digits}g}") for digits in (1, 2, 4)]
        if abs(number) < 1e15:
            candidates.append(float(round(number)))
    for candidate in candidates:
        if len(repr(candidate)) < len(repr(number)):
            yield candidate


def _without_items(case: Case, fails: Fails, deadline: float) -> Case:
    step = len(case.memory)
    while step:
        start = 0
        while start < len(case.memory) and time.monotonic() < deadline:
            smaller = Case(
                case.memory[:start] + case.memory[start + step :],
                case.runtime[:start] + case.runtime[start + step :],
                case.budget,
            )
            if fails(smaller):
                case = smaller
            else:
                start += step
        step //= 2
    return case


def _with_plain_numbers(case: Case, fails: Fails, deadline: float) -> Case:
    n = len(case.memory)
    for place in range(2 * n + 1):
        numbers = [case.budget, *case.memory, *case.runtime]
        for candidate in _simpler(numbers[place]):
            plainer = [*numbers[:place], candidate, *numbers[place + 1 :]]
            smaller = Case(plainer[1 : n + 1], plainer[n + 1 :], plainer[0])
            if time.monotonic() < deadline and fails(smaller):
                case = smaller
                break
    return case


def shrink(case: Case, fails: Fails) -> Case:
    """A case that fails as well, with fewer items and plainer numbers."""
    deadline = time.monotonic() + SHRINK_S
    before = None
    while case != before and time.monotonic() < deadline:
        before = case
        case = _without_items(case, fails, deadline)
        case = _with_plain_numbers(case, fails, deadline)
    return case


def as_test(found: Found) -> str:
    """The text of a test that fails until the solver is mended."""

    def literal(number: float) -> str:
        return "math.inf" if number == math.inf else repr(number)

    def literals(numbers: Sequence[float]) -> str:
        text = f"[{', '.join(map(literal, numbers))}],"
        return textwrap.fill(
            text, 88, initial_indent=" " * 12, subsequent_indent=" " * 13
        )

    memory, runtime, budget = found.case
    if len(memory) > 1000:
        case = f'fuzz.instance("{found.solver}", {found.seed}, {found.number})'
    else:
        case = "\n".join(
            [
                "fuzz.Case(",
                literals(memory),
                literals(runtime),
                f"            {literal(budget)},",
                "        )",
            ]
        )
    return TEST.format(
        solver=found.solver,
        rule=found.fault.rule,
        detail=textwrap.shorten(found.fault.detail, 70),
        seed=found.seed,
        number=found.number,
        math="import math\n" if "math." in case else "",
        case=case,
    )


TEST = '''\
# Owner(s): ["module: functorch"]
"""Found by scripts/fuzz.py --solver {solver} --seed {seed}, instance {number}."""

{math}import sys
from pathlib import Path

from torch.testing._internal.common_utils import run_tests, TestCase


sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from overlaykit import fuzz, solvers


class TestFound(TestCase):
    def test_{rule}(self):
        # It was: {detail}
        case = {case}
        call = solvers.get("{solver}").call
        found = list(fuzz.faults("{solver}", call, case))
        self.assertFalse(found, found)


if __name__ == "__main__":
    run_tests()
'''


# --- running ---


@dataclass
class Outcome:
    tried: Counter[str] = field(default_factory=Counter)
    found: list[Found] = field(default_factory=list)


def run(
    names: Sequence[str],
    seconds: float,
    seed: int,
    *,
    calls: dict[str, Call] | None = None,
    at_each: Callable[[Outcome], None] = lambda outcome: None,
) -> Outcome:
    """Try the solvers in turn until the time is over. One fault of a rule is kept for
    each solver: the same mistake seldom shows only once."""
    outcome = Outcome()
    calls = calls or {name: solvers.get(name).call for name in names}
    begin = time.monotonic()
    number = 0
    while time.monotonic() - begin < seconds:
        for name in names:
            call = calls[name]
            case = instance(name, seed, number)
            known = {(found.solver, found.fault.rule) for found in outcome.found}
            rng = random.Random(number)
            for fault in (*faults(name, call, case), *refusals(name, call, case, rng)):
                if (name, fault.rule) not in known:
                    outcome.found.append(
                        _smallest(Found(name, case, fault, seed, number), call)
                    )
                    break
            outcome.tried[name] += 1
        number += 1
        at_each(outcome)
    return outcome


def _smallest(found: Found, call: Call) -> Found:
    rule = found.fault.rule
    if rule in ("refusal", "time"):
        return found

    def same(case: Case) -> Fault | None:
        every = (f for f in faults(found.solver, call, case) if f.rule == rule)
        return next(every, None)

    case = shrink(found.case, lambda candidate: same(candidate) is not None)
    return Found(
        found.solver, case, same(case) or found.fault, found.seed, found.number
    )


def _parser() -> argparse.ArgumentParser:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(description=summary, epilog=rest)
    parser.add_argument("--seconds", type=float, default=60, help="default: 60")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument(
        "--solver",
        action="append",
        choices=SOLVERS,
        help="default: all; repeat for several",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        default=ROOT / "test" / "functorch",
        help="for the tests of what is found; default: test/functorch",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if not options.seconds > 0:
        raise UserError(f"--seconds: {options.seconds} is not above 0")
    if not options.output.is_dir():
        raise UserError(f"--output: {options.output} is not a folder")
    names = options.solver or list(SOLVERS)
    console = Console()
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=options.seconds)
        begin = time.monotonic()

        def show(outcome: Outcome) -> None:
            bar.update(
                task,
                completed=min(time.monotonic() - begin, options.seconds),
                description=f"{sum(outcome.tried.values()):,} instances, "
                f"{len(outcome.found)} faults",
            )

        outcome = run(names, options.seconds, options.seed, at_each=show)
    for name in names:
        count = sum(found.solver == name for found in outcome.found)
        console.print(
            f"{name}: {outcome.tried[name]:,} instances, "
            f"{count or 'no'} {'fault' if count == 1 else 'faults'}",
            highlight=False,
        )
    for found in outcome.found:
        text = as_test(found)
        mark = f"{zlib.crc32(text.encode()):08x}"
        path = options.output / f"test_fuzz_{found.solver}_{found.fault.rule}_{mark}.py"
        write_whole(path, text)
        console.print(
            f"{found.solver}, {found.fault.rule}: "
            f"{textwrap.shorten(found.fault.detail, 200)}\n  {path}",
            highlight=False,
            markup=False,
        )
    return 1 if outcome.found else 0
