"""The pages of the site that nobody writes: read from the code, from the commands' own help and from committed results.

A hook of MkDocs (`mkdocs.yml` names it). It also does two things to pages that people write: a link that leaves this
folder leads to a page made of that file, and a paragraph that is nothing but a link to a file of results is replaced by
the table it leads to, so that no number is typed by hand:

    [Extended-class](../../benchmarks/results/all_methods.md#extended-class)

is the first table below that heading; a second one of the same heading has the title "2".
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import griffe
from markdown.extensions.toc import slugify

from limpet.cli import main
from limpet.cli.program import path_of
from limpet.methods.base import CompatibilityMethod
from limpet.results import Part, Results
from limpet_bench.cli import main as bench

if TYPE_CHECKING:
    from limpet_bench.suite import Suite

ROOT = Path(__file__).parent.parent
RESULTS = "benchmarks/results"
LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".csv": "text", ".txt": "text", ".c": "c"}
MEASURED = ("all_methods.md", "hyperbolic.md", "continual_omniglot.md", "frozen_models.md", "partial_labels.md",
            "label_free.md",
            "bench/*/leaderboard.md")  # fmt: skip
"""Whose tables have a row per method."""
FOLDERS = {"bench/src/limpet_bench/suites": "reference/included_suites.md"}
"""Pages that links to a whole folder lead to."""

LINK = re.compile(r"\]\(((?!https?:|mailto:|#)[^)\s#]+)(#[^)\s]*)?( \"[^\"]*\")?\)")
TABLE_LINK = re.compile(r"^\[([^]]+)\]\(([^)\s#]*benchmarks/results/[^)\s#]+)(?:#([^)\s]*))?(?: \"(\d+)\")?\)$", re.M)


class ConstructedByFields(griffe.Extension):
    """Mark classes that are made of their fields as dataclasses: settings, and models of pydantic."""

    def on_class_instance(self, *, cls: griffe.Class, **_: Any) -> None:
        """Say so, while the source is read."""
        documented = cls.docstring is not None and "\nArgs:\n" in cls.docstring.value
        if documented and "__init__" not in cls.members and "dataclass" not in str(cls.decorators):
            source = "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass Example: ..."
            cls.decorators = griffe.visit("example", Path("example.py"), source)["Example"].decorators


# ---- what MkDocs calls


def on_config(config: Any) -> Any:
    """Make all pages, and put them where `mkdocs.yml` says `FOLDER/*`."""
    made = {**pages()}
    made |= linked_files([*written(config["docs_dir"]), *made.items()])
    config["nav"] = list(placed(config["nav"], [*made, *(path for path, _ in written(config["docs_dir"]))]))
    config["extra"]["made"] = made
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add what was made."""
    from mkdocs.structure.files import File

    for path, content in config["extra"]["made"].items():
        if path not in files.src_uris:
            files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Put tables where links to them stand, and lead links out of this folder to the pages made of those files."""
    place = page.file.src_uri
    origin = origin_of(place)

    def table(found: re.Match[str]) -> str:
        title, target, heading, number = found.groups()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
        return f"{excerpt(path, heading, int(number or 1))}\n\n<small>{title}, from [{path}]({target})</small>"

    text_with_tables = LINK.sub(lambda found: led(found, place, origin), TABLE_LINK.sub(table, markdown))
    return re.sub(
        r"^\|.*$",
        lambda row: row[0].replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}"),
        text_with_tables,
        flags=re.M,
    )


def origin_of(place: str) -> str:
    """Return the file of the repository that a page is made of, from whose folder its links lead."""
    if place.startswith("results/files/"):
        return f"{RESULTS}/{place.removeprefix('results/files/')}"
    return posixpath.basename(place) if place.startswith("project/") else f"docs/{place}"


def led(found: re.Match[str], place: str, origin: str) -> str:
    target, anchor, title = found[1], found[2] or "", found[3] or ""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
    page = page_of(path)
    if page is None:
        return found[0]
    return f"]({posixpath.relpath(page, posixpath.dirname(place) or '.')}{anchor}{title})"


def page_of(path: str) -> str | None:
    """Return the page that a file or folder of the repository has on the site; None where it is none of its files."""
    if path in FOLDERS:
        return FOLDERS[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if not (ROOT / path).is_file():
        return None
    if path.startswith(f"{RESULTS}/"):
        if path.endswith((".html", ".csv", ".json", ".svg")):
            return "results/opened" + path.removeprefix(RESULTS)
        place = "results/files" + path.removeprefix(RESULTS)
        return place + ".md" if path.endswith(".txt") else place
    return f"project/{path}" if path.endswith(".md") else f"source/{path}.md"


def placed(nav: Iterable[Any], made: list[str]) -> Iterator[Any]:
    for entry in nav:
        if isinstance(entry, str) and entry.endswith("/*"):
            folder = entry.removesuffix("*")
            yield from sorted(
                (path for path in made if path.startswith(folder)), key=lambda path: (path != f"{folder}index.md", path)
            )
        elif isinstance(entry, dict):
            yield {
                name: list(placed(inner, made)) if isinstance(inner, list) else inner for name, inner in entry.items()
            }
        else:
            yield entry


def written(folder: str | Path) -> Iterator[tuple[str, str]]:
    for path in sorted(Path(folder).rglob("*.md")):
        yield path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8")


def linked_files(texts: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return a page for every file outside the folder of documents that a link leads to, code with its colours."""
    made = {}
    for place, text in texts:
        for found in LINK.finditer(text):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(origin_of(place)), found[1]))
            page = page_of(path)
            if page and page.startswith("source/"):
                body = (ROOT / path).read_text(encoding="utf-8")
                made[page] = (
                    f"---\nsearch: {{exclude: true}}\n---\n# {path}\n\n{code(body, LANGUAGES[Path(path).suffix])}"
                )
            elif page and page.startswith("results/opened/"):
                made[page] = (ROOT / path).read_text(encoding="utf-8")
    return made


# ---- the pages


def pages() -> dict[str, str]:
    """Return every page that is made from code or results, by its path below the folder of documents."""
    return {
        **method_pages(),
        **command_pages(),
        **python_pages(),
        "reference/results_files.md": results_files(),
        "concepts/lifecycle.md": lifecycle(),
        "reference/protocols.md": protocols(),
        "reference/data_sets.md": data_sets(),
        "reference/included_suites.md": included_suites(),
        "reference/papers.md": papers(),
        "reference/suite_settings.md": suite_settings(),
        **results_pages(),
        **{f"project/{name}.md": text(f"{name}.md") for name in ("CONTRIBUTING", "CHANGELOG", "SECURITY")},
    }


def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def code(body: str, language: str = "text") -> str:
    fence = "`" * 3
    while fence in body:
        fence += "`"
    return f"{fence}{language}\n{body.rstrip()}\n{fence}\n"


def table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    head = list(head)
    lines = [[cell_of(cell) for cell in line] for line in (head, ["---"] * len(head), *rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell_of(value: Any) -> str:
    """Return a value as a cell of a table, whose bars stand for themselves; in code they do anyway."""
    return re.sub(r"`[^`]*`|\|", lambda found: "\\|" if found[0] == "|" else found[0], str(value).replace("\n", " "))


def described(documentation: str, defaults: dict[str, Any] | None = None) -> str:
    """Return a Google docstring as Markdown; options with their defaults, where these are given."""
    parts = []
    for section in griffe.Docstring(inspect.cleandoc(documentation)).parse("google", warnings=False):
        if section.kind is griffe.DocstringSectionKind.text:
            parts.append(section.value)
        elif section.kind in (griffe.DocstringSectionKind.parameters, griffe.DocstringSectionKind.attributes):
            rows = (
                [
                    f"`{option.name}`",
                    *([default(defaults, option.name)] if defaults is not None else []),
                    option.description,
                ]
                for option in section.value
            )
            parts.append(table(["option", *(["default"] if defaults is not None else []), "what it says"], rows))
        elif section.kind is griffe.DocstringSectionKind.examples:
            parts.extend(
                value if kind is griffe.DocstringSectionKind.text else code(value, "pycon")
                for kind, value in section.value
            )
    return "\n\n".join(parts)


def default(defaults: dict[str, Any], name: str) -> str:
    return f"`{defaults[name]}`" if name in defaults else "–"


def summary(documentation: str) -> str:
    return inspect.cleandoc(documentation).partition("\n\n")[0].replace("\n", " ")


# ---- methods


def method_pages() -> dict[str, str]:
    from limpet.methods import METHODS
    from limpet.methods.descriptions import describe

    rows, made = [], {}
    for name in METHODS.places:
        told = describe(name)
        rows.append(
            [
                f"[{name}]({name}.md)",
                summary(told.documentation),
                "sessions" if told.sessions_only else "one upgrade",
                ", ".join(sorted(told.spaces)),
            ]
        )
        parts = [
            f"# {name}",
            described(told.documentation, told.options),
            f"Spaces: {', '.join(sorted(told.spaces))}."
            f"{'' if told.needs_old else ' Needs no old model.'}{' Only in sessions.' if told.sessions_only else ''}"
            f"{'' if METHODS[name].without_classes is None else ' Needs no classes: pairs of texts will do.'}",
            f"In [a training loop of your own](../tutorials/own_loop.md) it reads, beside embeddings, labels and "
            f"what is kept of the old model: {needs(METHODS[name]())}.",
            code(f"limpet methods {name}", "console"),
            "## Measured",
            *measured(name),
            f"[The source](../../src/{METHODS[name].__module__.replace('.', '/')}.py) is one file.",
        ]
        made[f"methods/{name}.md"] = "\n\n".join(parts) + "\n"
    head = text("docs/methods/index.md.in")
    made["methods/index.md"] = head.replace("METHODS", table(["method", "what it does", "for", "spaces"], rows))
    return made


def needs(method: CompatibilityMethod) -> str:
    """Return in words what a method reads, with its default options, beside embeddings and labels."""
    from limpet.training.compatibility_loss import WANTED

    return "; ".join(words for read, (words, _) in WANTED.items() if read in method.reads) or "nothing"


def measured(name: str) -> Iterator[str]:
    """Yield the rows of a method in every table of results, below what the table is called."""
    found = False
    for pattern in MEASURED:
        for path in sorted((ROOT / RESULTS).glob(pattern)):
            place = path.relative_to(ROOT).as_posix()
            title = ""
            for heading, lines in tables(path.read_text(encoding="utf-8")):
                rows = [line for line in lines[2:] if is_row_of(line, name)]
                if rows and heading != title:
                    title, found = heading, True
                    yield "\n".join([*lines[:2], *rows])
                    yield f"<small>{heading}, from [{place}](../../{place})</small>"
    if not found:
        yield "No table of results has a row of it yet."


def is_row_of(line: str, name: str) -> bool:
    cell = line.split("|")[1].strip().strip("*").replace("\\", "").removeprefix("head ")
    return cell == name or cell.startswith((f"{name},", f"{name} "))


def tables(markdown: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the headings above each table, as one title, and its lines."""
    heading = chapter = ""
    lines: list[str] = []
    for line in [*markdown.splitlines(), ""]:
        if line.startswith("|"):
            lines.append(line)
            continue
        if lines:
            yield ": ".join(filter(None, (chapter, heading))), lines
            lines = []
        if line.startswith("# "):
            chapter, heading = line[2:], ""
        elif line.startswith("#"):
            heading = line.lstrip("# ")


def excerpt(path: str, heading: str | None, number: int) -> str:
    """Return a table of a file of results, or the whole of a text.

    Raises:
        ValueError: There is none.
    """
    body = text(path)
    if path.endswith(".txt"):
        return code(body)
    parts = re.split(r"^(?=#+ )", body, flags=re.M)
    found = [lines for part in parts if heading in (None, anchor(part)) for _, lines in tables(part)]
    if len(found) < number:
        raise ValueError(
            f"{path} has no table {number} below '{heading}', but below {[anchor(part) for part in parts]}"
        )
    return "\n".join(found[number - 1])


def anchor(part: str) -> str:
    """Return what leads to the heading of a part, as the site's own pages have it."""
    return slugify(part.partition("\n")[0].lstrip("# "), "-")


def results_pages() -> dict[str, str]:
    made = {}
    for path in sorted((ROOT / RESULTS).rglob("*")):
        place = path.relative_to(ROOT / RESULTS).as_posix()
        if path.suffix == ".md":
            made[f"results/files/{place}"] = path.read_text(encoding="utf-8")
        elif path.suffix == ".txt":
            made[f"results/files/{place}.md"] = f"# {place}\n\n{code(path.read_text(encoding='utf-8'))}"
    return made


# ---- reference


@cache
def help_of(*words: str, program: Callable[[list[str]], int] = main) -> str:
    """Return what a command prints for `--help`; nothing where it knows no help of its own."""
    said, width = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "88"
    try:
        with (
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.suppress(SystemExit),
        ):
            program([*words, "--help-all" if program is not main or path_of(words) else "--help"])
    finally:
        os.environ.pop("COLUMNS")
        if width is not None:
            os.environ["COLUMNS"] = width
    return said.getvalue()


def subcommands(said: str, command: str = "") -> list[str]:
    """Return the commands that a help lists, if it lists any, and those that its sentences name."""
    usage = said.partition("\n\n  ")[0]
    listed = re.findall(r"^  ([a-z][\w-]*)  +\S", said, flags=re.M) if re.search(r"\b(SUB)?COMMAND\b", usage) else []
    named = re.findall(rf"`limpet\s+{command}\s+([a-z]\w+)", said) if command else []
    return list(dict.fromkeys([*listed, *named]))


def command_pages() -> dict[str, str]:
    made = {}
    for command in subcommands(help_of()):
        said = help_of(command)
        parts = [f"# limpet {command}", code(said)]
        for name in subcommands(said, command):
            if (of_it := help_of(command, name)) not in ("", said):
                parts += [f"## limpet {command} {name}", code(of_it)]
        made[f"reference/commands/{command}.md"] = "\n\n".join(parts)
    said = help_of(program=bench)
    parts = ["# limpet-bench", code(said)]
    for command in subcommands(said):
        parts += [f"## limpet-bench {command}", code(help_of(command, program=bench))]
    made["reference/commands/limpet-bench.md"] = "\n\n".join(parts)
    return made


def python_pages() -> dict[str, str]:
    """Return a page for every public module; a name that several of them export is described on the first page.

    Raises:
        ValueError: A public name has no docstring.
    """
    pages = {}
    described: dict[int, str] = {}
    for module, names in public_modules().items():
        entries, listed = [], []
        for name in names:
            value, place = getattr(importlib.import_module(module), name), f"{module}.{name}"
            constant = not (inspect.isclass(value) or inspect.isfunction(value))
            if not constant and not inspect.getdoc(value):
                raise ValueError(f"{place} has no docstring")
            if isinstance(value, str | int | float | tuple):  # griffe does not read `A, B = 1, 2`
                listed.append(f"- `{name}` = `{value!r}`")
            elif constant or described.setdefault(id(value), place) == place:
                entries.append(f"::: {place}")
            else:
                listed.append(f"- `{name}`: see [{described[id(value)]}][]")
        about = summary(importlib.import_module(module).__doc__ or "")
        parts = [f"# {module}", about, "\n".join(listed), *entries]
        pages[f"reference/python/{module}.md"] = "\n\n".join(filter(None, parts)) + "\n"
    return pages


def public_modules() -> dict[str, list[str]]:
    """Return the names that other packages may import, by module: every ``__all__``, that of limpet first."""
    found = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        if re.search("^__all__ = ", path.read_text(encoding="utf-8"), flags=re.M):
            name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
            found[name] = list(importlib.import_module(name).__all__)
    return dict(sorted(found.items()))


def results_files() -> str:
    kinds = []
    sources = [(root, path) for root in (ROOT / "src", ROOT / "bench/src") for path in sorted(root.rglob("*.py"))]
    for root, path in sources:
        for name in re.findall(r"^class (\w+)\(Results\):", path.read_text(encoding="utf-8"), flags=re.M):
            module = ".".join(path.relative_to(root).with_suffix("").parts)
            kinds.append(getattr(importlib.import_module(module), name))
    parts = [text("docs/reference/results_files.md.in").rstrip()]
    for kind in kinds:
        parts += [f"## {kind.__name__}", f"{written_by(kind)}\n\n`{kind.__module__}.{kind.__name__}`"]
        parts += [described_fields(kind)]
        for inner in parts_within(kind):
            parts += [
                f"### {inner.__name__} {{ #{kind.__name__.lower()}-{inner.__name__.lower()} }}",
                described_fields(inner),
            ]
    return "\n\n".join(parts) + "\n"


def written_by(kind: type[Results]) -> str:
    return f"`{kind.FILE}`: {kind.WRITER}."


def described_fields(kind: type[Part]) -> str:
    sections = griffe.Docstring(inspect.getdoc(kind) or "").parse("google", warnings=False)
    said = {
        option.name: option.description
        for part in sections
        if part.kind is griffe.DocstringSectionKind.parameters
        for option in part.value
    }
    texts = [part.value for part in sections if part.kind is griffe.DocstringSectionKind.text]
    types = {
        name: annotation
        for base in reversed(kind.__mro__)
        for name, annotation in inspect.get_annotations(base).items()
    }
    rows = [
        [f"`{field.alias or name}`", f"`{plain_type(str(types.get(name, '')))}`", said.get(name, "")]
        for name, field in kind.model_fields.items()
    ]
    return "\n\n".join([*texts, table(["key", "type", "what it says"], rows)])


def plain_type(annotation: str) -> str:
    """Return what a value is, without what is checked of it: `Annotated[list[X], ...]` as `list[X]`."""
    found = re.fullmatch(r"Annotated\[(.+?), \w+\(.*\)\]", annotation)
    return found[1] if found else annotation


def parts_within(kind: type[Part]) -> list[type[Part]]:
    """Return the parts that a kind of results is made of, outermost first, those of its own modules alone."""
    found: list[type[Part]] = []
    waiting: list[Any] = [field.annotation for field in kind.model_fields.values()]
    while waiting:
        one = waiting.pop(0)
        waiting += getattr(one, "__args__", ())
        if inspect.isclass(one) and issubclass(one, Part) and one not in found:
            found.append(one)
            waiting += [field.annotation for field in one.model_fields.values()]
    return found


def protocols() -> str:
    from dataclasses import fields

    from limpet.evaluation.protocols import PROTOCOLS

    PROTOCOLS.import_installed()
    parts = [text("docs/reference/protocols.md.in").rstrip()]
    for name, protocol in PROTOCOLS.items():
        defaults = {field.name: field.default for field in fields(protocol)}
        parts += [f"## {name}", described(protocol.__doc__ or "", defaults)]
    return "\n\n".join(parts) + "\n"


def lifecycle() -> str:
    from limpet.attached.postgres.layout import Aside, ColumnLayout, OneColumn
    from limpet.engines.collections import ENGINES
    from limpet.engines.promises import Promises
    from limpet.engines.stores import STORES

    places: dict[str, Promises] = {
        **{f"gallery: `{kind}`": store.promises for kind, store in STORES.items()},
        "PostgreSQL table, new column": ColumnLayout.promises,
        "PostgreSQL table, `--same-column`": OneColumn.promises,
        "PostgreSQL table, `--aside`": Aside.promises,
        **{f"collection: `{kind}`": engine.promises for kind, engine in ENGINES.items()},
    }
    rows = [
        [place, one.writer, one.noticed, one.swap, one.rollback, "yes" if one.earlier else "no", one.index]
        for place, one in places.items()
    ]
    head = ["engine", "writer", "writes detected by", "swap", "rollback", "consistent reads", "index"]
    return f"{text('docs/concepts/lifecycle.md.in').rstrip()}\n\n{table(head, rows)}\n"


def data_sets() -> str:
    from limpet.data.datasets import DATASETS
    from limpet.data.texts import TEXT_DATASETS

    for known in (DATASETS, TEXT_DATASETS):
        known.import_installed()
    everything = {**DATASETS, **TEXT_DATASETS}
    parts = [text("docs/reference/data_sets.md.in").rstrip()]
    for option, sets in (("--data", DATASETS), ("--texts", TEXT_DATASETS)):
        rows = [
            [f"[`{name}`](#{name})", f"`{data.folder}`" if data.folder else "none", data.description]
            for name, data in sets.items()
        ]
        parts.append(table([f"`{option}`", "folder", "what it is"], rows))
    for name, data in everything.items():
        defaults = {
            option.name: option.default
            for option in inspect.signature(data.read).parameters.values()
            if option.default is not option.empty
        }
        parts += [f"## {name}", described(data.read.__doc__ or "", defaults)]
        parts += [f"Obtained from {data.obtained}."] if data.obtained else []
    return "\n\n".join(parts) + "\n"


@cache
def shipped_suites() -> dict[str, Suite]:
    """Return the built-in suites by name."""
    from limpet_bench.suites import SUITES, suite_named

    return {name: suite_named(name) for name in SUITES}


def included_suites() -> str:
    parts = [text("docs/reference/included_suites.md.in").rstrip()]
    from limpet_bench.suites import SUITES

    for name, suite in shipped_suites().items():
        parts += [
            f"## {name}",
            f"**{suite.title}.** {suite.description}",
            code(inspect.getsource(SUITES[name]), "python"),
        ]
    return "\n\n".join(parts) + "\n"


def suite_settings() -> str:
    """Return every setting of suites and figures, from the docstrings of their classes."""
    from limpet_bench import figures, suite

    parts = [text("docs/reference/suite_settings.md.in").rstrip()]
    for kind in (suite.Suite, suite.Run, suite.Data, suite.Scenario, suite.Training, suite.Search, suite.Frozen,
                 suite.EvaluationSet):  # fmt: skip
        parts += [f"## {kind.__name__}", described(kind.__doc__ or "")]
    parts += ["## Figures", described(figures.FigureSpec.__doc__ or "")]
    for figure in (*figures.FIGURES.values(), figures.Column):
        bases = [base for base in figure.__mro__[1:] if issubclass(base, figures.FigureSpec)][:-1]
        parts += [f"### {figure.__name__}", described(figure.__doc__ or "")]
        inherited = [described(base.__doc__ or "").partition("\n\n")[2] for base in bases]
        parts += [rows for rows in inherited if rows]
    return "\n\n".join(parts) + "\n"


def papers() -> str:
    """Return every table and figure of the papers that has a suite, with what gives it and what was run of it."""
    from limpet_bench.suites import PAPERS, SUITES

    parts, reproducing = [text("docs/reference/papers.md.in").rstrip()], reproducing_suites()
    for paper, module in PAPERS.items():
        head, _, rest = (inspect.getdoc(module) or "").partition("\n\n")
        parts += [f"## {head.rstrip('.')}", *([rest.replace("\n", " ")] if rest else [])]
        rows = []
        for item in sorted(name for name in reproducing if name.startswith(f"{paper}/")):
            named = reproducing[item]
            at_size = [suite for suite in named if not suite.endswith("-small")]
            shows = dict.fromkeys(summary(inspect.getdoc(SUITES[suite]) or "") for suite in at_size)
            commands = [f"`limpet-bench run {suite}`" for suite in at_size]
            boards = [(suite, f"{RESULTS}/bench/{suite}/leaderboard.md") for suite in named]
            ran = [f"[{suite}](../../{path})" for suite, path in boards if (ROOT / path).exists()]
            name = item_name(item.partition("/")[2])
            rows.append([name, *("<br>".join(cell) for cell in (shows, commands, ran))])
        parts.append(table(["", "shows", "command", "run here, small"], rows))
    return "\n\n".join(parts) + "\n"


def reproducing_suites() -> dict[str, list[str]]:
    """Return the names of the suites that reproduce a table or figure, by PAPER/ITEM."""
    found: dict[str, list[str]] = {}
    for name, suite in shipped_suites().items():
        for item in suite.reproduces:
            found.setdefault(item, []).append(name)
    return found


def item_name(item: str) -> str:
    """Write a table or figure as people do.

    >>> item_name("table-c-5"), item_name("figure-2")
    ('Table C.5', 'Figure 2')
    """
    kind, *number = item.split("-")
    return f"{kind.title()} {'.'.join(number).upper()}"
