"""Apply, check and revert the overlay on one torch tree, safely.

What state a tree is in is decided by the sha256 of its files alone. `torch/.knapsack-overlay/`
keeps what cannot be recomputed:

    pristine/      the patched files as PyTorch ships them
    manifest.json  what was, or is being, written: path -> digest before and after
    staged/        the finished files, waiting to be renamed into place; its presence
                   means that a run has not ended
    lock           held by the run at work

A run prepares everything there, then renames file by file, so a run killed at any point leaves
files that are each wholly old or wholly new, and what is needed to go on or back.
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, BinaryIO

from overlaykit import pins
from overlaykit.cli import UserError


STATE = Path("torch", ".knapsack-overlay")
LOCK_WAIT = 10.0  # seconds


class Status(enum.Enum):
    """The state of a tree."""

    APPLIED = "applied"
    PRISTINE = "pristine"
    PARTLY = "partly applied"
    DRIFTED = "drifted"
    OUTDATED = "outdated"


@dataclass(frozen=True)
class File:
    """One file the overlay touches, by digests; None stands for "no such file"."""

    path: str
    before: str | None
    after: str | None
    live: str | None
    written: frozenset[str | None]  # by earlier runs

    @property
    def state(self) -> str:
        if self.live == self.before:
            return "pristine"
        if self.live == self.after:
            return "applied"
        if self.live in self.written:
            return "written by another version of this package"
        return f"expected {self.before or 'no file'}, found {self.live or 'no file'}"

    @property
    def drifted(self) -> bool:
        return self.live not in {self.before, self.after, *self.written}


@dataclass(frozen=True)
class Plan:
    """What a tree holds and what this package makes of it."""

    root: Path
    base: pins.Base
    files: list[File]
    contents: dict[str, bytes]  # by digest, pristine and patched
    manifest: dict[str, Any]

    @property
    def status(self) -> Status:
        recorded = self.manifest["after"]
        if any(file.drifted for file in self.files):
            return Status.DRIFTED
        if all(file.live == file.after for file in self.files):
            return Status.APPLIED
        if all(file.live == file.before for file in self.files):
            return Status.PRISTINE
        if all(
            file.live == recorded.get(file.path, file.before) for file in self.files
        ):
            return Status.OUTDATED
        return Status.PARTLY

    def listing(self) -> str:
        """Return one line per file: its path and its state."""
        return "\n".join(f"  {file.path}: {file.state}" for file in self.files)

    def changes(self, revert: bool) -> list[str]:
        """Return what `apply` or `revert` would do, one line per file."""
        lines = []
        for file in self.files:
            goal = file.before if revert else file.after
            if file.live is None and goal is not None:
                lines.append(f"add {file.path}")
            elif file.live is not None and goal is None:
                lines.append(f"remove {file.path}")
            elif file.live != goal:
                lines.append(f"replace {file.path}")
        return lines

    def refuse_drift(self) -> None:
        """Raise a UserError that lists every file if one is neither ours nor PyTorch's."""
        if self.status is Status.DRIFTED:
            raise UserError(
                f"{self.root / 'torch'} is not a torch this package knows; nothing was"
                f" changed. Compared with the nearest, {self.base.version}:\n"
                f"{self.listing()}\nRestore PyTorch's own files (git checkout, or"
                " reinstall torch) and run again."
            )


def inspect(root: Path, package: pins.Package | None = None) -> Plan:
    """Compare the tree with the base that it resembles most; writes nothing to it.

    Args:
        root: the folder that holds `torch/`.
        package: what to apply; this repository by default.

    Raises:
        UserError: a file cannot be read, or a patch does not apply to its pinned file.
    """
    package = package or pins.load()
    manifest = _read_manifest(root)
    try:
        plans = [_plan(root, base, package, manifest) for base in package.bases]
    except OSError as error:
        raise UserError(f"{error.filename or root}: {error.strerror}") from error
    return min(plans, key=lambda plan: sum(file.drifted for file in plan.files))


def apply(root: Path, package: pins.Package | None = None) -> bool:
    """Bring the tree to the applied state; return False if it was there already.

    Raises:
        UserError: the tree has drifted, cannot be written, or another run holds it.
    """
    staged = root / STATE / "staged"
    if inspect(root, package).status is Status.APPLIED and not staged.exists():
        return False
    with _locked(root / STATE / "lock"):
        plan = inspect(root, package)
        plan.refuse_drift()
        _keep(plan)
        _replace(plan, {file.path: file.after for file in plan.files})
    return plan.status is not Status.APPLIED


def revert(root: Path, package: pins.Package | None = None) -> bool:
    """Restore PyTorch's own bytes and leave no trace; return False if nothing was applied.

    Raises:
        UserError: the tree has drifted, cannot be written, or another run holds it.
    """
    if not (root / STATE).exists() and inspect(root, package).status is Status.PRISTINE:
        return False
    with _locked(root / STATE / "lock"):
        plan = inspect(root, package)
        plan.refuse_drift()
        _replace(plan, {file.path: file.before for file in plan.files})
        for folder in sorted(plan.manifest["folders"], reverse=True):
            with contextlib.suppress(OSError):  # not empty: someone else uses it
                shutil.rmtree(root / folder / "__pycache__", ignore_errors=True)
                (root / folder).rmdir()
        # A run that waits for the lock may recreate it here; that one cleans up then.
        shutil.rmtree(root / STATE, ignore_errors=True)
    return plan.status is not Status.PRISTINE


def _plan(
    root: Path, base: pins.Base, package: pins.Package, manifest: dict[str, Any]
) -> Plan:
    """Compare the tree with one base."""
    pristine: dict[str, bytes] = {}
    touched = base.touched()
    for path in touched:
        for candidate in (root / path, root / STATE / "pristine" / path):
            data = _read(candidate)
            if data is not None and sha256_of(data) == base.sha256[path]:
                pristine[path] = data
                break
    before: dict[str, str | None] = {path: base.sha256[path] for path in touched}
    after: dict[str, bytes] = {}
    written: dict[str, frozenset[str | None]] = {}
    if len(pristine) == len(touched):  # else it is another base, or files were edited
        after = _patched(pristine, base.patches)
        written = {
            path: frozenset([digest, *manifest["earlier"].get(path, [])])
            for path, digest in manifest["after"].items()
        }
    after |= {path: source.read_bytes() for path, source in package.overlay.items()}
    contents = {sha256_of(data): data for data in (*pristine.values(), *after.values())}

    # What another version of this package wrote and this one would not.
    for path in written.keys() - before.keys() - after.keys():
        shipped = manifest["before"][path]
        if _live(root / path) in written[path] - {shipped}:
            before[path] = shipped
            kept = _read(root / STATE / "pristine" / path)
            if kept is not None and sha256_of(kept) == shipped:
                contents[shipped] = kept
            elif shipped is not None:
                del written[path]  # no way back: the file counts as drifted

    files = [
        File(
            path,
            before.get(path),
            sha256_of(after[path]) if path in after else before.get(path),
            _live(root / path),
            written.get(path, frozenset()),
        )
        for path in sorted(before.keys() | after.keys())
    ]
    return Plan(root, base, files, contents, manifest)


def _patched(pristine: dict[str, bytes], patches: tuple[Path, ...]) -> dict[str, bytes]:
    """Return the files with the patches applied, in a folder aside."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        for path, data in pristine.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        # Inside a repository `git apply` skips what lies elsewhere, and the user's settings
        # (autocrlf, whitespace) change what it writes: let it see neither.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        environment |= {
            "GIT_CEILING_DIRECTORIES": str(folder.parent),
            "GIT_CONFIG_NOSYSTEM": "1",
            "HOME": name,
            "XDG_CONFIG_HOME": name,
        }
        for patch in patches:
            # A patch may also edit upstream's tests: an installed torch has none.
            options = ["--whitespace=nowarn", "--include=torch/*", str(patch)]
            try:
                done = subprocess.run(
                    ["git", "apply", *options],
                    cwd=folder,
                    env=environment,
                    capture_output=True,
                    text=True,
                )
            except FileNotFoundError as error:
                raise UserError("git is needed and was not found") from error
            if done.returncode:
                raise UserError(f"{patch.name} does not apply: {done.stderr.strip()}")
        return {path: (folder / path).read_bytes() for path in pristine}


def _keep(plan: Plan) -> None:
    """Put aside what a later run needs to go on or back, before anything is replaced."""
    state = plan.root / STATE
    old = plan.manifest
    for file in plan.files:
        if file.before is not None:
            _write(state / "pristine" / file.path, plan.contents[file.before])
    earlier = {
        path: sorted({*old["earlier"].get(path, []), *filter(None, [digest])})
        for path, digest in old["after"].items()
    }
    folders = {
        parent.as_posix()
        for file in plan.files
        for parent in Path(file.path).parents
        if not (plan.root / parent).exists()
    }
    manifest = {
        "base": plan.base.version,
        "before": {file.path: file.before for file in plan.files},
        "after": {file.path: file.after for file in plan.files},
        "earlier": earlier,
        "folders": sorted(folders.union(old["folders"])),
    }
    _write(state / "manifest.json", json.dumps(manifest, indent=1).encode())


def _replace(plan: Plan, goal: dict[str, str | None]) -> None:
    """Bring every file to its goal digest: stage, verify, then rename one by one."""
    staged = plan.root / STATE / "staged"
    changes = [file for file in plan.files if file.live != goal[file.path]]
    for file in changes:
        digest, live = goal[file.path], plan.root / file.path
        if not os.access(next(p for p in live.parents if p.exists()), os.W_OK):
            raise PermissionError(13, "Permission denied", str(live.parent))
        if digest is not None:
            data = plan.contents[digest]
            if live.suffix == ".py":
                try:
                    compile(data, file.path, "exec", dont_inherit=True)
                except SyntaxError as error:
                    raise UserError(f"{file.path} does not compile: {error}") from error
            _write(staged / file.path, data, live)
            if _live(staged / file.path) != digest:
                raise UserError(f"{staged / file.path} was not written correctly")
    _remove_bytecode(plan)
    for file in changes:
        live = plan.root / file.path
        if _live(live) != file.live:
            raise UserError(f"{live} changed during the run; run again")
        if goal[file.path] is None:
            live.unlink()
        else:
            live.parent.mkdir(parents=True, exist_ok=True)
            # A rename also leaves alone a package cache that shares the file by a hard link.
            os.replace(staged / file.path, live)
        _sync(live.parent)
    # Again: a process that imported during the run may have left bytecode of the old files.
    _remove_bytecode(plan)
    shutil.rmtree(staged, ignore_errors=True)


def _remove_bytecode(plan: Plan) -> None:
    """Remove the compiled form of every touched module, for every Python version."""
    for file in plan.files:
        source = plan.root / file.path
        for folder in (
            source.parent / "__pycache__",
            Path(cache_from_source(str(source))).parent,
        ):
            for compiled in folder.glob(f"{source.stem}.*.pyc"):
                compiled.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the tree's lock; clean up if nothing came of the run, name the file if it failed."""
    state = path.parent
    new = not state.exists()
    try:
        with exclusive(path, LOCK_WAIT):
            try:
                _write(state / ".gitignore", b"*\n")
                yield
            except BaseException:
                if new and not (state / "manifest.json").exists():
                    shutil.rmtree(state, ignore_errors=True)
                raise
    except OSError as error:
        raise UserError(f"{error.filename or state}: {error.strerror}") from error


@contextlib.contextmanager
def exclusive(path: Path, wait: float) -> Iterator[None]:
    """Hold a lock file, created as needed, against other processes.

    Raises:
        UserError: another process still holds it after `wait` seconds.
    """
    deadline = time.monotonic() + wait
    told = False
    while (stream := _try_lock(path)) is None:
        if time.monotonic() > deadline:
            raise UserError(f"another run holds {path}")
        if not told:
            print(f"waiting for the run that holds {path}", file=sys.stderr)
            told = True
        time.sleep(0.1)
    with stream:
        yield


def _try_lock(path: Path) -> BinaryIO | None:
    """Return the file, open and locked, or None while another process holds it."""
    path.parent.mkdir(exist_ok=True)
    with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as stack:
        stream = stack.enter_context(path.open("ab"))
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        # A holder that reverts removes the file: a lock on that one guards nothing.
        if os.path.samestat(os.fstat(stream.fileno()), path.stat()):
            stack.pop_all()
            return stream
    return None


def _read_manifest(root: Path) -> dict[str, Any]:
    empty: dict[str, Any] = {
        "base": None,
        "before": {},
        "after": {},
        "earlier": {},
        "folders": [],
    }
    try:
        return {**empty, **json.loads(_read(root / STATE / "manifest.json") or b"{}")}
    except ValueError:  # not ours any more: the files' digests still tell
        return empty


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def sha256_of(data: bytes) -> str:
    """Return the sha256 of a file's bytes in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def _live(path: Path) -> str | None:
    """Return the digest of a file on disk, None if there is none."""
    data = _read(path)
    return None if data is None else sha256_of(data)


def _write(path: Path, data: bytes, like: Path | None = None) -> None:
    """Write a file durably and all at once, with the mode and owner of `like` if it exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    with part.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    if like is not None and like.exists():
        status = like.stat()
        part.chmod(status.st_mode)
        with contextlib.suppress(PermissionError):
            os.chown(part, status.st_uid, status.st_gid)
    os.replace(part, path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    """Make the folder's renames durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
