"""Forks: operations that a fork must not interrupt, and state that a forked child must reset.

DataLoader and multiprocessing fork a process that uses a gallery. The child has the locks of threads that it does not
have, the handle of the lock that its parent holds as writer, and connections that only one process may use. SQLite
cannot even open a file in the child that is open in the parent: it assumes that it holds the parent's locks. So objects
release these before a fork, and start anew in the child::

    at_fork(self, before=Pool.let_go, in_child=Pool.start_anew)  # weak: an object that is gone is not called

    with unforked():            # a fork in another thread waits until this is done
        handle = os.open(...)
        self._handles.add(handle)
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")
Methods = WeakKeyDictionary[Any, list[Callable[[Any], None]]]

_LONGEST = 30.0  # maximum seconds that a fork waits; then the child cannot use what was in use

_before: Methods = WeakKeyDictionary()
_in_child: Methods = WeakKeyDictionary()
_gate = threading.Condition()
_inside: dict[int, int] = {}  # nesting depth of `unforked` by thread id
_waiting = 0  # threads that wait for exclusive access; no other thread enters meanwhile


def at_fork(
    owner: T, *, before: Callable[[T], None] | None = None, in_child: Callable[[T], None] | None = None
) -> None:
    """Call methods of an object around every fork of this process, for as long as the object lives.

    Args:
        owner: The object, which is not kept alive; it may register several methods.
        before: Called in the parent while no other thread is inside `unforked`.
        in_child: Called in the child, whose only thread is the one that forked.
    """
    with _gate:
        for method, methods in ((before, _before), (in_child, _in_child)):
            if method is not None:
                methods.setdefault(owner, []).append(method)


@contextmanager
def unforked() -> Iterator[None]:
    """Run a block that a fork must not interrupt; it may be nested."""
    me = threading.get_ident()
    with _gate:
        if me not in _inside:
            _gate.wait_for(lambda: not _waiting)
        _inside[me] = _inside.get(me, 0) + 1
    try:
        yield
    finally:
        with _gate:
            _inside[me] -= 1
            if not _inside[me]:
                del _inside[me]
                _gate.notify_all()


@contextmanager
def alone() -> Iterator[None]:
    """Run a block while no other thread is inside `unforked`, or has been for longer than a fork waits."""
    with _gate:
        _wait_for_others()
        yield


def _wait_for_others() -> None:
    global _waiting
    me = threading.get_ident()
    depth = _inside.pop(me, 0)  # two waiting threads do not wait for each other
    _waiting += 1
    try:
        _gate.wait_for(lambda: not _inside, _LONGEST)
    finally:
        _waiting -= 1
        if depth:
            _inside[me] = depth
        _gate.notify_all()


def _call(methods: Methods) -> None:
    for owner, known in list(methods.items()):
        for method in known:
            method(owner)


def _before_fork() -> None:
    _gate.acquire()
    _wait_for_others()
    _call(_before)


def _after_fork_in_child() -> None:
    global _gate, _inside, _waiting
    me = threading.get_ident()
    _gate, _waiting = threading.Condition(), 0
    _inside = {me: _inside[me]} if me in _inside else {}
    _call(_in_child)


os.register_at_fork(before=_before_fork, after_in_parent=lambda: _gate.release(), after_in_child=_after_fork_in_child)
