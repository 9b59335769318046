"""The task cache: one folder per task, named by the content address of the task."""

from __future__ import annotations

import errno
import fcntl  # `is_held` needs a shared lock; filelock offers these only on SQLite files
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from limpet.embeddings.storage import write_atomically
from limpet.errors import DataError
from limpet.results import Part
from limpet_bench.tasks import Task, in_order

Read = TypeVar("Read")

RECORD, FAILURE, LOCKS = "cell.json", "failure.json", ".locks"
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # the file system has no locks: tasks run unlocked


class TaskRecord(BaseModel):
    """The record of a finished task.

    Args:
        address: Content address of the task.
        kind: Kind of the step.
        needs: Addresses of the tasks that it needed, by role.
        code: Digest of the code that ran it.
        work: Approximate amount of work, for estimates only.
        seconds: Duration in seconds.
        values: Values that the step returned; their names depend on the kind.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    address: str
    kind: str
    settings: Mapping[str, Any]
    needs: Mapping[str, str] = {}
    code: str
    label: str = ""
    work: float
    seconds: float
    machine: str
    values: Mapping[str, Any]


class TaskCache:
    """A folder of finished tasks, shared by all suites.

    The folder of a task holds its output. Its record is written last, so a task without a record is unfinished. A rerun
    continues from what the folder holds, such as a checkpoint.

    Args:
        root: The folder; created on the first write.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, task: Task) -> Path:
        """Return the folder of a task, whether or not it exists."""
        return self.root / task.kind / task.address[:24]

    def record(self, task: Task) -> TaskRecord | None:
        """Return the record of a finished task; None if it is not finished."""
        found = self._read(self.folder(task) / RECORD, TaskRecord.model_validate)
        if found is not None and found.address != task.address:
            raise DataError(
                f"The folder '{self.folder(task)}' is of another step, {found.address[:24]}.",
                expected="folders as the bench made them",
                to_do="remove it; it will be made again.",
            )
        return found

    def failure(self, task: Task) -> str | None:
        """Return why the last run of a task failed; None if it did not fail."""
        return self._read(self.folder(task) / FAILURE, lambda content: str(content["reason"]))

    def finish(self, task: Task, values: Mapping[str, object], seconds: float, machine: str = "") -> None:
        """Write the record of a finished task, and remove the note of an earlier failure."""
        record = TaskRecord(
            **task.identity(),
            address=task.address,
            label=task.label,
            work=task.work,
            seconds=round(seconds, 3),
            machine=machine,
            values=dict(values),
        )
        self._write(self.folder(task) / RECORD, dict(record))
        (self.folder(task) / FAILURE).unlink(missing_ok=True)

    def fail(self, task: Task, reason: str, traceback: str = "") -> None:
        """Record why a task failed."""
        content = {"address": task.address, "label": task.label, "reason": reason, "traceback": traceback}
        self._write(self.folder(task) / FAILURE, content)

    @contextmanager
    def held(self, task: Task) -> Iterator[None]:
        """Lock a task, because two benches may share a cache.

        This waits while another process holds the lock. The operating system releases the lock when its process ends,
        for whatever reason. The caller must check again whether the task is finished, because it may have waited. On a
        file system without locks, nothing is locked.

        Raises:
            DataError: The lock file cannot be created or locked.
        """
        path = self._lock(task)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = path.open("ab")
        except OSError as error:
            raise _out_of_reach("write", path, error) from error
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise _out_of_reach("lock", path, error) from error
            try:
                yield
            finally:  # closing is not enough: a forked process may still have the file open
                with suppress(OSError):
                    fcntl.flock(handle, fcntl.LOCK_UN)

    def is_held(self, task: Task) -> bool:
        """Return whether the lock of a task is held now, by another process or elsewhere in this one."""
        try:
            with self._lock(task).open("rb") as handle:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # no lock file: no process has started the task; or the file system has no locks
            return False
        return False

    def _lock(self, task: Task) -> Path:
        """Return the lock file. It is outside the folder of the task, which users may remove to rerun the task."""
        return self.root / LOCKS / f"{task.kind}-{task.address[:24]}"

    def forget_failures(self, tasks: Iterable[Task]) -> int:
        """Forget the failures of tasks, and of all tasks that they need, so that these run again.

        Failures of other tasks stay, because suites share a cache and finding a failure may have taken hours.

        Returns:
            Number of failures that were removed.
        """
        found = [path for task in in_order(tasks) if (path := self.folder(task) / FAILURE).exists()]
        for path in found:
            path.unlink(missing_ok=True)
        return len(found)

    def remove(self, task: Task) -> None:
        """Remove the folder of a task, with its record and output."""
        shutil.rmtree(self.folder(task), ignore_errors=True)

    def records(self) -> list[TaskRecord]:
        """Return the records of all finished tasks of all suites; durations are estimated from them."""
        found = (self._read(path, TaskRecord.model_validate) for path in sorted(self.root.glob(f"*/*/{RECORD}")))
        return [record for record in found if record is not None]

    def _read(self, path: Path, made_of: Callable[[Any], Read]) -> Read | None:
        try:
            return made_of(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _out_of_reach("read", path, error) from error
        except (ValueError, TypeError, LookupError) as error:
            raise DataError(
                f"Cannot read '{path}': {_wrong(error)}.",
                expected="a record as the bench wrote it",
                to_do=f"remove the folder '{path.parent}'; the step will be run again.",
            ) from error

    def _write(self, path: Path, content: Mapping[str, object]) -> None:
        text = json.dumps(content, indent=1, sort_keys=True, default=_plain) + "\n"
        write_atomically(path, lambda part: part.write_text(text, encoding="utf-8"))


def _plain(value: object) -> dict[str, JsonValue]:
    if isinstance(value, Part):
        return value.to_dict()
    raise TypeError(f"A {type(value).__name__} is no plain value")


def _wrong(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg']}"
    return f"there is no {error}" if isinstance(error, LookupError) else str(error)


def _out_of_reach(what: str, path: Path, error: OSError) -> DataError:
    return DataError(
        f"Cannot {what} '{path}': {error.strerror or error}.",
        expected="a folder of finished steps that can be read and written, with room for what they make",
        to_do="make it so, or choose another: --cache FOLDER; steps that are finished are kept.",
    )
