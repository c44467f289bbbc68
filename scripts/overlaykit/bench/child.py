"""One solver on one instance in a process of its own: time, and memory above idle.

The parent's side is `measure`; `main` is what the fresh process runs. Linux only: the
peak is read, and first reset, in /proc.
"""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from overlaykit.cli import UserError


SCRIPTS = Path(__file__).resolve().parents[2]
# sys.path[0] would be the folder that the user is in, perhaps a PyTorch checkout.
_START = (
    "import sys; sys.path[0] = sys.argv.pop(1); "
    "from overlaykit.bench.child import main; main()"
)


def measure(
    solver: str,
    kind: str | None = None,
    *,
    limit: int | None = None,
    **arguments: int,
) -> dict[str, Any]:
    """Run `solver` on `generate.KINDS[kind](**arguments)` in a new process.

    Returns seconds, cpu_seconds, peak_bytes above the idle import, the plan's use of
    the budget, and process_seconds and process_cpu_seconds from start to end; or "refused", the allocator's own words, where `limit`
    bytes of address space above the idle import were not enough. Without a kind the
    process imports the solver and ends.

    Raises:
        UserError: the system is not Linux, or the process died.
    """
    if not Path("/proc/self/clear_refs").exists():
        raise UserError("paper: peak memory is read from /proc, which is Linux's")
    spec = {"solver": solver, "kind": kind, "limit": limit, "arguments": arguments}
    begin, before = time.perf_counter(), os.times()
    done = subprocess.run(
        [sys.executable, "-c", _START, str(SCRIPTS), json.dumps(spec)],
        capture_output=True,
        text=True,
    )
    passed, after = time.perf_counter() - begin, os.times()
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise UserError(f"paper: {solver} in a fresh process ended so: {last}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    found["process_seconds"] = passed
    found["process_cpu_seconds"] = (
        after.children_user
        + after.children_system
        - before.children_user
        - before.children_system
    )
    return found


def _status(key: str) -> int:
    """A size in bytes from /proc/self/status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {key}")


def main() -> None:
    import resource

    from overlaykit import solvers
    from overlaykit.bench import generate

    spec = json.loads(sys.argv[1])
    call = solvers.get(spec["solver"]).call
    gc.collect()
    if spec["limit"] is not None:
        ceiling = _status("VmSize") + spec["limit"]
        resource.setrlimit(resource.RLIMIT_AS, (ceiling, ceiling))
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts at what is in use
    idle = _status("VmRSS")
    result: dict[str, Any] = {"idle_bytes": idle}
    if spec["kind"] is not None:
        knapsack = generate.KINDS[spec["kind"]](**spec["arguments"])
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            _, saved, _ = call(*knapsack)
        except (RuntimeError, MemoryError) as error:
            words = str(error) or type(error).__name__
            shown = re.search(r"DefaultCPUAllocator: .*? bytes", words)
            result["refused"] = shown[0] if shown else words.splitlines()[0]
            print(json.dumps(result))
            return
        result["seconds"] = time.perf_counter() - wall
        result["cpu_seconds"] = time.process_time() - cpu
        used = sum(knapsack.memory[i] for i in saved)
        result["of_budget"] = used / knapsack.budget
        result["kept_runtime"] = sum(knapsack.runtime[i] for i in saved)
    result["peak_bytes"] = max(0, _status("VmHWM") - idle)
    print(json.dumps(result))
