"""Measure the solvers beside their peers, on real, random and hard instances.

Every suite prints its tables and the targets it reached, and writes a JSON file; --plots
adds a picture. Solvers are timed in turn, round by round, and ratios are medians over the
rounds, so that a busy machine shifts them little. Seeds are fixed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from overlaykit import solvers
from overlaykit.bench import suite_hard, suite_paper, suite_random, suite_real
from overlaykit.bench.common import environment, Outcome, Settings, target_table
from overlaykit.cli import UserError
from overlaykit.instances import write_whole


ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "scripts" / "results"
SUITES: dict[str, Any] = {
    "real": suite_real,
    "random": suite_random,
    "paper": suite_paper,
    "hard": suite_hard,
}


def _parser() -> argparse.ArgumentParser:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(description=summary, epilog=rest)
    parser.add_argument("suite", nargs="*", metavar="SUITE", help="see --list")
    parser.add_argument("--list", action="store_true", help="list the suites and stop")
    parser.add_argument("--quick", action="store_true", help="each under a minute")
    parser.add_argument("--plots", action="store_true", help="draw the PNGs too")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="default: scripts/results, with --quick build/results",
    )
    parser.add_argument("--repeats", type=int, help="instead of the suite's own number")
    parser.add_argument(
        "--instance",
        action="append",
        default=[],
        metavar="NAME",
        help="real: only this one; repeat for several",
    )
    parser.add_argument(
        "--no-peers", action="store_true", help="leave OR-tools and HiGHS out"
    )
    parser.add_argument(
        "--huge",
        action="store_true",
        help="paper: also n = 100, W = 7.5e8 without a common divisor; takes 13 GB",
    )
    return parser


def _check(options: argparse.Namespace) -> None:
    for name in options.suite:
        if name not in SUITES:
            raise UserError(f"suite: {name!r} is not one of {', '.join(SUITES)}")
    if not options.suite:
        raise UserError(f"no suite named; one or more of {', '.join(SUITES)}")
    if options.repeats is not None and options.repeats < 1:
        raise UserError(f"--repeats: {options.repeats} is not at least 1")
    for needed, name in (("instance", "real"), ("huge", "paper")):
        if getattr(options, needed) and name not in options.suite:
            raise UserError(f"--{needed} is for the suite {name}, which is not named")
    for name in solvers.NAMES:
        solvers.get(name)  # says what is missing, before anything is measured


def _check_folder(folder: Path) -> None:
    """Fail before the measurements rather than after them."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--output: {folder}: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise UserError(f"--output: {folder}: not writable")


def _finite(value: Any) -> Any:
    """JSON has no NaN: what could not be measured is null."""
    if isinstance(value, dict):
        return {str(key): _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _document(
    name: str, options: argparse.Namespace, outcome: Outcome, seconds: float
) -> dict[str, Any]:
    command = ["scripts/benchmark.py", name]
    command += ["--quick"] * options.quick + ["--huge"] * (options.huge)
    command += [f"--instance={instance}" for instance in options.instance]
    command += [f"--repeats={options.repeats}"] if options.repeats else []
    command += ["--no-peers"] * options.no_peers
    document = {
        "suite": name,
        "command": " ".join(command),
        "quick": options.quick,
        "seconds": round(seconds, 1),
        "targets": [target.as_json() for target in outcome.targets],
        "notes": outcome.notes,
        **outcome.data,
    }
    found: dict[str, Any] = _finite(document)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    if options.list:
        for name, suite in SUITES.items():
            console.print(f"{name:8} {suite.HELP}")
        return 0
    _check(options)
    folder = options.output or (ROOT / "build/results" if options.quick else RESULTS)
    _check_folder(folder)
    found = environment()
    console.print("  ".join(f"{key} {value}" for key, value in found.items()))
    if found["load_before"] > 0.5 * (found["cores"] or 1):
        console.print(
            "[bold]busy machine:[/bold] solvers that use several threads (dp and "
            "hirschberg, as shipped) may look far slower than they are"
        )
    for name in dict.fromkeys(options.suite):
        progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        settings = Settings(
            progress=progress,
            quick=options.quick,
            repeats=options.repeats,
            instances=tuple(options.instance),
            peers=not options.no_peers,
            huge=options.huge,
        )
        begin = time.perf_counter()
        with progress:
            outcome: Outcome = SUITES[name].run(settings)
        document = _document(name, options, outcome, time.perf_counter() - begin)
        document["environment"] = found
        console.print()
        for table in outcome.tables:
            console.print(table)
        for note in outcome.notes:
            console.print(note)
        console.print(target_table(outcome.targets))
        path = folder / f"{name}.json"
        write_whole(path, json.dumps(document, indent=1) + "\n")
        console.print(f"written: {path}", soft_wrap=True)
        if options.plots:
            from overlaykit.bench import plots

            picture = path.with_suffix(".png")
            plots.draw(document, picture)
            console.print(f"picture: {picture}\n", soft_wrap=True)
    return 0
