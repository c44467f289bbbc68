#!/usr/bin/env python3
"""Apply the overlay to a PyTorch checkout or an installed torch, check it, or revert it."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path


if os.name != "posix":
    sys.exit("error: this script runs on Linux and macOS only")
if sys.version_info < (3, 10):  # noqa: UP036
    sys.exit("error: Python 3.10 or newer is needed")

sys.path.insert(0, str(Path(__file__).resolve().parent))

from overlaykit import cli, overlay, target
from overlaykit.overlay import Status


EXIT_CODES = {
    Status.APPLIED: 0,
    Status.PRISTINE: 3,
    Status.PARTLY: 4,
    Status.DRIFTED: 5,
    Status.OUTDATED: 6,
}

EPILOG = """\
exit status of --check:
  0  applied
  3  pristine: as PyTorch ships it
  4  partly applied: a run was interrupted; apply again to complete it, or --revert
  5  drifted: files that are neither PyTorch's nor this package's; each is listed
  6  outdated: applied by another version of this package; apply again to update
any other action exits with 0 when the tree is in the state asked for; always:
  1  an error, in one line     2  wrong arguments     130  interrupted
"""

# A source file's change empties that cache by itself; a change of this setting does not.
CACHE_NOTE = (
    "note: after changing activation_memory_budget_solver, set TORCHINDUCTOR_CACHE_DIR to an"
    " empty folder: AOTAutograd's cache may serve the plan of the solver used before"
)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "target",
        metavar="TARGET",
        nargs="?",
        type=Path,
        help="a PyTorch source checkout, a site-packages folder, a torch folder,"
        " or a virtual environment",
    )
    parser.add_argument(
        "--python",
        metavar="PATH",
        help="work on the torch that this Python would import",
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", action="store_true", help="only tell the state")
    action.add_argument(
        "--revert", action="store_true", help="restore PyTorch's own files"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="tell what would be done"
    )
    arguments = parser.parse_args()
    if (arguments.target is None) == (arguments.python is None):
        parser.error("give either TARGET or --python PATH")
    return arguments


def main() -> int:
    arguments = parse()
    if arguments.python is not None:
        root = target.find_for_python(arguments.python)
    else:
        root = target.find(arguments.target)
    plan = overlay.inspect(root)

    if arguments.check:
        print(f"{root / 'torch'}: {plan.status.value} (base {plan.base.version})")
        if plan.status not in (Status.APPLIED, Status.PRISTINE):
            print(plan.listing())
        return EXIT_CODES[plan.status]

    if arguments.dry_run:
        plan.refuse_drift()
        for line in plan.changes(revert=arguments.revert):
            print(f"would {line}")
        return 0

    done = "reverted" if arguments.revert else "applied"
    try:
        changed = (overlay.revert if arguments.revert else overlay.apply)(root)
    except KeyboardInterrupt:
        print("run again to complete, or with --revert to go back", file=sys.stderr)
        raise
    if not changed:
        print(
            f"nothing to do: {root / 'torch'} is {done if not arguments.revert else 'pristine'}"
        )
        return 0
    print(f"{done}: {root / 'torch'} (base {plan.base.version})")
    if not arguments.revert:
        print(CACHE_NOTE)
    return 0


if __name__ == "__main__":
    cli.run(main)
