"""Places of a gallery's rows in Lance tables: the versions of a pointer, and the changes of a commit to each.

Every generation has a table. A remainder (g, S), the rows of generation g whose items have no vector in any generation
of S, is also a table of its own: it starts as a set of links to the files of g's table, so that it needs no disk space
except for a list of removed rows, and does not depend on its location.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Self, TypedDict, cast

from limpet.engines.ledger import reading
from limpet.engines.planning import Appended, CommitPlan
from limpet.engines.store import Document, Rows

Remainder = tuple[str, frozenset[str]]
"""A generation, and the other generations in which its items must have no vector."""


class PlacesRecord(TypedDict, total=False):
    """`TableVersions` as the ledger keeps them; a place is its table, version and digest.

    Args:
        linked: A generation, the others of a remainder, and its place.
    """

    tables: dict[str, tuple[str, int, str]]
    linked: list[tuple[str, list[str], tuple[str, int, str]]]


@dataclass(frozen=True)
class TableVersion:
    """One version of a Lance table.

    Args:
        version: Number of the version in Lance.
        digest: SHA-256 of the manifest of the version; empty if unknown.
    """

    table: str
    version: int
    digest: str = ""


@dataclass(frozen=True)
class TableVersions:
    """Table versions of all rows as of one commit.

    Args:
        tables: Versions of the generations' tables, by name.
        remainders: Versions of the remainders that searches may use.
    """

    tables: Mapping[str, TableVersion] = field(default_factory=dict)
    remainders: Mapping[Remainder, TableVersion] = field(default_factory=dict)

    def __iter__(self) -> Iterator[TableVersion]:
        yield from self.tables.values()
        yield from self.remainders.values()

    @classmethod
    def read(cls, plain: Document) -> Self:
        """Parse the value of `plain`; an empty one means no rows."""
        with reading("The list of tables"):
            record = cast(PlacesRecord, plain)
            tables = {name: TableVersion(*place) for name, place in record.get("tables", {}).items()}
            linked = record.get("linked", ())
            return cls(tables, {(name, frozenset(others)): TableVersion(*place) for name, others, place in linked})

    def plain(self) -> PlacesRecord:
        """Return plain values.

        >>> TableVersions({"g1": TableVersion("g1-0a", 3)}).plain()
        {'tables': {'g1': ('g1-0a', 3, '')}, 'linked': []}
        """
        return {
            "tables": {name: astuple(place) for name, place in self.tables.items()},
            "linked": [(name, sorted(others), astuple(place)) for (name, others), place in self.remainders.items()],
        }


@dataclass(frozen=True)
class Edit:
    """Changes of a commit to the rows of one table: removals first, then additions.

    Args:
        remove: Ids to remove; some may not exist.
        append: Rows whose ids no longer exist by then.
    """

    remove: Sequence[str]
    append: Sequence[Appended]

    def __bool__(self) -> bool:
        return bool(self.remove or self.append)


def edit_of_generation(plan: CommitPlan, generation: str) -> Edit:
    """Return the changes of a planned commit to the rows of a generation."""
    appended = [part for part in plan.append if part.rows.generation == generation and len(part.rows.ids)]
    return Edit(list(plan.remove.get(generation, ())), appended)


def edit_of_remainder(plan: CommitPlan, remainder: Remainder) -> Edit:
    """Return the changes of a planned commit to the rows of a remainder.

    Rows leave it with their item, or when the item gets a vector of one of the other generations; rows added to the
    generation also join it if the item has none of those.
    """
    generation, others = remainder
    whole = edit_of_generation(plan, generation)
    added = {identifier for part in whole.append for identifier in part.rows.ids}
    remove = dict.fromkeys(whole.remove)
    for part in plan.append:
        if part.rows.generation in others:
            pairs = zip(part.rows.ids, part.holding, strict=True)
            remove |= {
                identifier: None for identifier, names in pairs if generation in names and identifier not in added
            }
    append = [_free_of(part, others) for part in whole.append]
    return Edit(list(remove), [part for part in append if len(part.rows.ids)])


def _free_of(part: Appended, others: frozenset[str]) -> Appended:
    rows = [row for row, names in enumerate(part.holding) if not names & others]
    if len(rows) == len(part.rows.ids):
        return part
    kept = Rows(part.rows.generation, [part.rows.ids[row] for row in rows], part.rows.vectors[rows])
    metadata, holding = [part.metadata[row] for row in rows], [part.holding[row] for row in rows]
    return Appended(kept, part.versions[rows], metadata, holding)
