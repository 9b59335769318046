"""Processes of trials, forked from one that has imported all it needs and has opened no gallery."""

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

PATIENCE = 300.0  # seconds until a process counts as hanging


def violation_of(wrong: str) -> tuple[str, str]:
    """Return check and finding of what `finished` returned."""
    found: tuple[str, str] = tuple(json.loads(wrong))
    return found


def forked(folder: Path, work: Callable[[], None]) -> int:
    """Do something in a process of its own; what is wrong it writes to a file."""
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
    """Wait for a process; return "killed", what is wrong as JSON, or None."""
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
    """Import what stores need, so that forked processes have it; nothing is opened."""
    warnings.filterwarnings("ignore", message="lancedb fork support")
    import limpet.engines.lance.store
    import limpet.engines.memory.store
    import limpet.engines.postgres.store
    import limpet.engines.s3.store
    import limpet.engines.sharded.store
    import limpet.galleries.backfill  # noqa: F401


def note_modules(folder: Path) -> None:
    """Write down which modules this process has imported."""
    (folder / "modules").write_text("\n".join(sorted(sys.modules)))


def import_noted(folder: Path) -> None:
    """Import the modules that another process wrote down."""
    for name in (folder / "modules").read_text().split():
        with suppress(ImportError):
            import_module(name)
