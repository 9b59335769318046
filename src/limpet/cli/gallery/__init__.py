"""``limpet gallery``: its subcommands, and the way to each of them."""

from __future__ import annotations

from limpet.cli.commands import function_of
from limpet.cli.console import console
from limpet.cli.parsing import run
from limpet.errors import ConfigError, LimpetError, unknown_name

SUBCOMMANDS = {
    "create": ("gallery.create:create", "make a gallery for the vectors of a model, filled if embeddings are given"),
    "import": ("gallery.imports:import_rows", "take vectors from files, a LanceDB table or a PostgreSQL table"),
    "add": ("gallery.rows:add", "add new items"),
    "upsert": ("gallery.rows:upsert", "add items, or replace them with all their vectors"),
    "delete": ("gallery.rows:delete", "remove items with all their vectors"),
    "search": ("gallery.search:search", "find the nearest items, with the generation of every hit"),
    "status": ("gallery.status:status", "show where the gallery and its upgrade stand, and what to type next"),
    "index": ("gallery.index:index", "build an approximate index over the vectors of a generation"),
    "doctor": ("gallery.checks:doctor", "read everything again, say what is wrong, or --repair it; exit code 1 if so"),
    "export": ("gallery.checks:export", "write the vectors and metadata of a generation to a file"),
    "backup": ("gallery.backup:backup", "copy everything to a new folder, while the gallery is written to"),
    "restore": ("gallery.backup:restore", "make the gallery of a backup in a new place"),
    "plan": ("gallery.plan:plan", "say what an upgrade would take: items, hours, cost, room; nothing is changed"),
    "rehearse": ("gallery.rehearse:rehearse", "try a whole upgrade on a copy and measure it; exit code 1 if it fails"),
    "prepare": ("gallery.upgrade:prepare", "make room for a new model; nothing that is served changes"),
    "link": ("gallery.upgrade:link", "let queries of one model search vectors of another, as a report allows"),
    "calibrate": ("gallery.upgrade:calibrate", "merge old and new vectors by scores on one scale, not by rank"),
    "swap": ("gallery.upgrade:swap", "make the prepared model the active one, at once"),
    "backfill": ("gallery.backfill:backfill", "give items new vectors, batch by batch; stopped anywhere, it goes on"),
    "complete": ("gallery.upgrade:complete", "count every new vector and declare the upgrade finished"),
    "rollback": ("gallery.upgrade:rollback", "make the former model active again, at once and without embedding"),
    "abandon": ("gallery.upgrade:abandon", "give up the prepared model"),
    "gc": ("gallery.upgrade:gc", "remove vectors that are not needed any more"),
    "journal": ("gallery.status:journal", "list what was done to the gallery, last entries last"),
}  # fmt: skip
"""By name: module and function, and what it does."""

READING = ("search", "status", "doctor", "export", "backup", "plan", "rehearse", "journal")
"""Those that change nothing."""

FORMER = {"drill": "rehearse", "vouch": "link"}
"""Names of an earlier version, which this one still takes, and what they are called now."""

_ALIASES = {"-k": "--k", "--from": "--embeddings"}


def main(words: list[str]) -> int:
    """Run one subcommand and return its exit code.

    Raises:
        SystemExit: Help was asked for.
        LimpetError: What the subcommand refused.
    """
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        if words:
            raise SystemExit(0)
        return 2
    if words[0] in FORMER:
        console.print(
            f"`limpet gallery {words[0]}` is called `limpet gallery {FORMER[words[0]]}` now; the former name goes "
            "with the next version."
        )
    name, rest = FORMER.get(words[0], words[0]), [_ALIASES.get(word, word) for word in words[1:]]
    try:
        if name not in SUBCOMMANDS:
            raise unknown_name("subcommand of `limpet gallery`", name, SUBCOMMANDS, listing="limpet gallery --help")
        return run(function_of(f"gallery {name}"), rest, f"gallery {name}")
    except LimpetError as error:
        error.to_do = error.to_do or f"`limpet gallery {name if name in SUBCOMMANDS else ''} --help` lists the options."
        if not error.intact:
            changed = name not in READING and not isinstance(error, ConfigError)
            error.intact = "The gallery is intact." if changed else "Nothing was changed."
        raise


def _help() -> str:
    width = max(map(len, SUBCOMMANDS)) + 2
    return "\n".join(
        [
            "A gallery that changes its model while it answers: search, backfill, swap, roll back.",
            "",
            "usage: limpet gallery SUBCOMMAND URL [--option value ...]",
            "",
            *(f"  {name:<{width}}{text}" for name, (_, text) in SUBCOMMANDS.items()),
            "",
            "URL is a folder (LanceDB), memory:FOLDER (all vectors in RAM, kept in one file) or a database, postgresql://…",
            "(with pgvector). `limpet gallery SUBCOMMAND --help` lists the options; every one takes --json.",
            "Exit codes: 0 fine, 1 a check or verdict failed, 2 wrong use or bad input, 130 interrupted.",
        ]
    )
