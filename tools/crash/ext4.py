"""A real ext4 file system that can lose power."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
_WITHOUT_THE_JOURNAL = 2  # the journal is not flushed: nothing more reaches the device
PATIENCE = 30.0  # maximum seconds to wait for the unmount


class NoExt4(RuntimeError):  # noqa: N818 (a reason to skip)
    """The file system cannot be created on this machine."""


class Ext4:
    """A file system in an image behind a loop device, mounted within a ``with`` block.

    Args:
        folder: Folder for the image and the mount point.
        megabytes: Size of the image.

    Raises:
        NoExt4: Root rights, loop devices or mkfs.ext4 are missing.
    """

    def __init__(self, folder: Path, megabytes: int = 64) -> None:
        self.mounted, self.image = folder / "mounted", folder / "image"
        self.options = ""
        if os.geteuid() != 0:
            raise NoExt4("mounting needs root")
        missing = [name for name in ("mkfs.ext4", "losetup", "mount", "umount") if shutil.which(name) is None]
        if missing:
            raise NoExt4(f"there is no {missing[0]}")
        self.mounted.mkdir(parents=True, exist_ok=True)
        with self.image.open("wb") as file:
            file.truncate(megabytes * 2**20)
        _call("mkfs.ext4", "-q", "-F", "-b", "4096", str(self.image))  # small images default to unusual 1024 bytes
        self.device = _call("losetup", "--find", "--show", str(self.image)).strip()
        with_its_own_cache_only = ["losetup", "--direct-io=on", self.device]
        subprocess.run(
            with_its_own_cache_only, capture_output=True
        )  # the cache of the image file must not keep data that was not synced

    def __enter__(self) -> Self:
        try:
            self.mount()
        except NoExt4:
            _call("losetup", "--detach", self.device)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.unmount()
        _call("losetup", "--detach", self.device)
        self.image.unlink()

    def mount(self, options: str = "") -> None:
        """Mount the file system, which replays its journal.

        Args:
            options: Options of mount; empty uses the defaults.
        """
        _call("mount", "-t", "ext4", "-o", options or "defaults", self.device, str(self.mounted))

    def unmount(self) -> None:
        """Unmount the file system; waits for killed processes that still use it."""
        until = time.monotonic() + PATIENCE
        while True:
            done = subprocess.run(["umount", str(self.mounted)], capture_output=True, text=True)
            if not done.returncode:
                return
            if "busy" not in done.stderr or time.monotonic() > until:
                raise RuntimeError(done.stderr)
            time.sleep(0.01)

    def cut(self) -> None:
        """Cut the power: nothing reaches the device any more, and every sync fails."""
        handle = os.open(self.mounted, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, _SHUTDOWN, struct.pack("I", _WITHOUT_THE_JOURNAL))
        finally:
            os.close(handle)

    def restart(self, options: str = "") -> None:
        """Unmount the file system, and mount it again as after a power failure.

        Args:
            options: Options of mount; empty uses the defaults.

        Raises:
            RuntimeError: The file system could not be unmounted.
            NoExt4: The file system could not be mounted.
        """
        self.unmount()
        self.mount(options)

    def commit(self) -> None:
        """Make the file system commit its journal, as it does every few seconds, by syncing an unrelated file."""
        handle = os.open(self.mounted / "other", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(handle, b"other")
            os.fsync(handle)
        finally:
            os.close(handle)


def _call(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NoExt4(f"{command[0]}: {done.stderr.strip()}")
    return done.stdout
