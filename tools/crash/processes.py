"""Processes of trials, forked from a process that has imported everything and has opened no gallery."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from crash.twin import Violation
from limpet.errors import LimpetError

PATIENCE = 300.0  # seconds after which a process counts as hanging


def violation_of(wrong: str) -> tuple[str, str]:
    """Return check and finding from the JSON that `finished` returned."""
    found: tuple[str, str] = tuple(json.loads(wrong))
    return found


def forked(folder: Path, work: Callable[[], None]) -> int:
    """Run a function in a forked process, which writes an error to the file "wrong" in a folder; return its id."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        work()
        code = 0
    except BaseException as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        wrong = ["error", traceback.format_exc()[-3000:]]
        if isinstance(error, Violation):
            wrong = [error.check, error.found]
        elif isinstance(error, LimpetError):
            wrong = ["refused", f"{type(error).__name__}: {error}"]
        (folder / "wrong").write_text(json.dumps(wrong))
    finally:
        os._exit(code)


def finished(pid: int, folder: Path) -> str | None:
    """Wait for a process; return "killed", or check and finding of an error as JSON, or None."""
    until = time.monotonic() + PATIENCE
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            break
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return json.dumps(["hangs", f"no end after {PATIENCE} s"])
        time.sleep(0.002)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return "killed"
    if os.WIFSIGNALED(status):
        return json.dumps(["error", f"the process ended by signal {os.WTERMSIG(status)}"])
    return (folder / "wrong").read_text() if os.WEXITSTATUS(status) else None


def import_stores() -> None:
    """Import the modules of all stores, so that forked processes have them; nothing is opened."""
    warnings.filterwarnings("ignore", message="lancedb fork support")
    import limpet.engines.lance.store
    import limpet.engines.memory.store
    import limpet.engines.postgres.store
    import limpet.engines.s3.store
    import limpet.engines.sharded.store
    import limpet.galleries.backfill  # noqa: F401


def note_modules(folder: Path) -> None:
    """Write the names of all imported modules to a file in a folder."""
    (folder / "modules").write_text("\n".join(sorted(sys.modules)))


def import_noted(folder: Path) -> None:
    """Import the modules that `note_modules` of another process wrote to a folder."""
    for name in (folder / "modules").read_text().split():
        with suppress(ImportError):
            import_module(name)
