"""Write the README's tables from the stored benchmark results.

Each table stands between `<!-- NAME from scripts/results/FILE.json -->` and `<!-- end -->`.
With --check nothing is written, and the exit status is 1 if the README would change.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from overlaykit.cli import UserError
from overlaykit.instances import write_whole
from overlaykit.pins import HOME


README = HOME / "README.md"
RESULTS = HOME / "scripts" / "results"
_BLOCK = re.compile(
    r"(<!-- (?P<name>\w+) from scripts/results/(?P<file>[\w-]+\.json) -->\n)"
    r".*?(<!-- end -->)",
    re.DOTALL,
)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, rule, *rows))


def _real(result: dict[str, Any]) -> str:
    """What each solver's plans get wrong, and its time."""
    rows = []
    for name, label in result["labels"].items():
        found = result["summary"].get(name)
        if found is None:
            continue
        cells = found["cells"]
        ratio = found["times_exact"]
        time = f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"
        rows.append(
            [
                label,
                f"{found['over_bytes']} of {cells}",
                f"{found['below_optimum']} of {cells}",
                time,
            ]
        )
    return _table(
        ["solver", "over the budget", "below the optimum", "time, exact = 1"], rows
    )


def _targets(result: dict[str, Any]) -> str:
    """What was aimed at and what was reached."""
    rows = [
        [
            target["name"],
            f"{'≥' if target['at_least'] else '≤'} {target['goal']:g}{target['unit']}",
            f"{target['reached']:.3g}{target['unit']}",
            "yes" if target["met"] else "**no**",
        ]
        for target in result["targets"]
    ]
    return _table(["what", "aim", "reached", "met"], rows)


_WRITERS: dict[str, Callable[[dict[str, Any]], str]] = {
    "real": _real,
    "targets": _targets,
}


def rendered(text: str) -> str:
    """Return the README's text with every table written anew.

    Raises:
        UserError: a block names no known table, or a result that is not stored.
    """

    def block(found: re.Match[str]) -> str:
        path = RESULTS / found["file"]
        if found["name"] not in _WRITERS:
            raise UserError(f"README.md: there is no table {found['name']!r}")
        if not path.is_file():
            raise UserError(
                f"README.md quotes {path.relative_to(HOME)}, which is missing"
            )
        table = _WRITERS[found["name"]](json.loads(path.read_text("utf-8")))
        return f"{found[1]}{table}{found[4]}"

    return _BLOCK.sub(block, text)


def main(arguments: Sequence[str] | None = None) -> int:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(description=summary, epilog=rest)
    parser.add_argument("--check", action="store_true", help="only tell")
    options = parser.parse_args(arguments)
    old = README.read_text("utf-8")
    new = rendered(old)
    if old == new:
        print("README.md is up to date")
        return 0
    if options.check:
        print("README.md differs from scripts/results; run scripts/update_readme.py")
        return 1
    write_whole(README, new)
    print("README.md written")
    return 0
