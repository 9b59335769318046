"""The command line: parse, call, print."""

from __future__ import annotations

import atexit
import gc
import os
import re
import sys
from collections.abc import Sequence

import limpet
from limpet.cli.program import LIMPET, Program
from limpet.errors import ConfigError, LimpetError

__all__ = ["main", "run_program"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 fine, 1 a verdict failed, 2 wrong use, 3 no verdict can be told."""
    return run_program(LIMPET, arguments)


def run_program(program: Program, arguments: Sequence[str] | None = None) -> int:
    """Run one command of a program, print its errors for people, and return its exit code; see `main`.

    Args:
        program: The program and its commands.
        arguments: What was typed after the name; the words of this process when None.
    """
    if arguments is None:  # a process of its own: looking for garbage in all that is imported took much of a command
        gc.set_threshold(50_000)
        atexit.register(gc.freeze)
        sys.meta_path.insert(0, _NoPandasForArrow())
    words = list(sys.argv[1:] if arguments is None else arguments)
    command, as_json = words[0] if words else "", "--json" in words or "--json=true" in words
    try:
        if command in ("", "-h", "--help", "help"):
            print(_help(program), flush=True)
            return 0 if words else 2
        if command in ("-V", "--version"):
            print(f"{program.name} {limpet.__version__}", flush=True)
            return 0
        from limpet.cli.console import heartbeat, print_error, tell_at_end

        with heartbeat(" ".join([program.name, command, *(word for word in words[1:2] if word.isalpha())])):
            from limpet.cli.app import run_command
            from limpet.support.extras import needing

            with needing(f"`{program.name} {command}`, as it was asked,"):
                try:
                    return run_command(words, program)
                finally:
                    tell_at_end()
    except LimpetError as error:
        print_error(command, error, as_json=as_json, program=program.name)
    except BrokenPipeError:  # the reader of standard output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError as error:
        print_error(command, _no_memory(error), as_json=as_json, program=program.name)
    except OSError as error:
        print_error(command, _no_place(error), as_json=as_json, program=program.name)
    except RuntimeError as error:
        if not (told := _out_of_memory(error)):
            raise
        print_error(command, _no_memory(MemoryError(told)), as_json=as_json, program=program.name)
    except KeyboardInterrupt:
        print("\nInterrupted. What was finished is kept; the same command continues.", file=sys.stderr)
        return 130
    return 2


class _NoPandasForArrow:
    """Finds no pandas where PyArrow looks for it, which it does before its first array, and works without.

    The import takes longer than most commands. Python code that names pandas gets it.
    """

    def find_spec(self, name: str, *_: object) -> None:
        """Find nothing; raise an error where Arrow asks, on behalf of limpet or of LanceDB's format."""
        if name != "pandas":
            return
        asking = sys._getframe(1)
        while asking.f_back is not None and asking.f_globals["__name__"].startswith("importlib._"):
            asking = asking.f_back
        package = asking.f_globals.get("__name__", "").partition(".")[0]
        if package in ("limpet", "lance", "pyarrow") and "pandas" not in asking.f_code.co_names:
            raise ModuleNotFoundError("PyArrow does without pandas here.", name=name)


def _no_place(error: OSError) -> ConfigError:
    where = f" '{error.filename}'" if error.filename else ""
    return ConfigError(
        f"Cannot read or write{where}: {error.strerror or error}.",
        expected="a place that is there and may be used",
        to_do="check the path, its rights and the room on its disk.",
        intact="What was written and committed before is intact.",
    )


_NO_ROOM = re.compile(r"you tried to allocate (\d+) bytes|(\w+) out of memory", re.IGNORECASE)


def _out_of_memory(error: RuntimeError) -> str:
    """Return what torch says where memory does not suffice, which it raises as any other error; else nothing."""
    found = _NO_ROOM.search(str(error))
    if found is None:
        return ""
    return f"{int(found[1]):,} bytes were asked for" if found[1] else f"that of the device ({found[2]}) is full"


def _no_memory(error: MemoryError) -> ConfigError:
    return ConfigError(
        f"There is not enough memory for this{f': {error}' if str(error) else ''}.",
        expected="a machine with more memory free, or less at a time",
        to_do="free memory, or take smaller pieces (a smaller --k, --batch, --batch-size or file); the same "
        "command continues.",
        intact="What was written and committed before is intact.",
    )


def _help(program: Program) -> str:
    summaries = program.summaries
    width = max(map(len, summaries)) + 2
    lines = [f"  {name:<{width}}{text}" for name, text in summaries.items()]
    return "\n".join(
        [
            program.help,
            "",
            f"usage: {program.name} COMMAND [--option value ...]",
            "",
            *lines,
            "",
            f"`{program.name} COMMAND --help` lists the options of a command; every command takes --json.",
            "Exit codes: 0 success, 1 negative verdict, 2 wrong usage or bad input, 3 no verdict possible.",
            "Long commands show a progress bar on a terminal, and write a line every half minute to a log.",
        ]
    )
