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
import json
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import griffe
from latex2mathml.converter import convert
from markdown.extensions.toc import slugify

from limpet.cli import main
from limpet.cli.program import path_of
from limpet.errors import LimpetError
from limpet.methods.base import CompatibilityMethod
from limpet.results import Part, Results
from limpet_bench.cli import main as bench

if TYPE_CHECKING:
    from limpet_bench.suite import Suite

ROOT = Path(__file__).parent.parent
RESULTS = "benchmarks/results"
LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".csv": "text", ".txt": "text", ".c": "c",
             ".service": "ini", ".md": "markdown", "": "docker"}  # fmt: skip
"""By the end of a file's name; a Dockerfile has none."""
MEASURED = ("all_methods.md", "hyperbolic.md", "continual_omniglot.md", "frozen_models.md", "partial_labels.md",
            "label_free.md",
            "bench/*/leaderboard.md")  # fmt: skip
"""Whose tables have a row per method."""
FOLDERS = {"bench/src/limpet_bench/suites": "reference/included_suites.md"}
"""Pages that links to a whole folder lead to."""

LARGE = 30
"""With more names, the page of a module is a list of pages, one for every module that the names come from."""

LINK = re.compile(r"\]\(((?!https?:|mailto:|#)[^)\s#]+)(#[^)\s]*)?( \"[^\"]*\")?\)")
TABLE_LINK = re.compile(r"^\[([^]]+)\]\(([^)\s#]*benchmarks/results/[^)\s#]+)(?:#([^)\s]*))?(?: \"(\d+)\")?\)$", re.M)


class Reference(griffe.Extension):
    """What the reference reads in sources beside docstrings and signatures."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Show examples as such, while the source is read."""
        if obj.docstring is not None:
            obj.docstring.value = with_examples(obj.docstring.value)

    def on_class_instance(self, *, cls: griffe.Class, **_: Any) -> None:
        """Mark classes that are made of their fields as dataclasses: settings, and models of pydantic."""
        documented = cls.docstring is not None and "\nArgs:\n" in cls.docstring.value
        if documented and "__init__" not in cls.members and "dataclass" not in str(cls.decorators):
            source = "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass Example: ..."
            cls.decorators = griffe.visit("example", Path("example.py"), source)["Example"].decorators


def with_examples(docstring: str) -> str:
    """Put the examples of a docstring into a section, where they stand free."""
    said, mark, examples = inspect.cleandoc(docstring).partition("\n\n>>> ")
    if not mark:
        return docstring
    first, *further = re.split(r"\n\n(?=(?:Args|Attributes|Raises|Returns|Yields):\n)", examples)
    body = f">>> {first}".replace("\n", "\n    ")
    return "\n\n".join([said, f"Examples:\n    {body}", *further])


# ---- what MkDocs calls


def on_config(config: Any) -> Any:
    """Make all pages, put them where `mkdocs.yml` says `FOLDER/*`, and offer other versions where mike builds one."""
    if "mike" in config["plugins"]:
        config["extra"]["version"] = {"provider": "mike"}
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
        return path.removeprefix("docs/").replace(".ipynb", ".md")
    if not (ROOT / path).is_file():
        return None
    if path.startswith(f"{RESULTS}/"):
        if path.endswith((".html", ".csv", ".json", ".svg")):
            return "results/opened" + path.removeprefix(RESULTS)
        place = "results/files" + path.removeprefix(RESULTS)
        return place + ".md" if path.endswith(".txt") else place
    return f"project/{path}" if path.endswith(".md") and "/" not in path else f"source/{path}.md"


def placed(nav: Iterable[Any], made: list[str]) -> Iterator[Any]:
    for entry in nav:
        if isinstance(entry, str) and entry.endswith("/*"):
            folder = entry.removesuffix("*")
            found = [path for path in made if path.startswith(folder)]  # a page stands before those of its folder
            yield from sorted(found, key=lambda path: (path != f"{folder}index.md", path[:-3].replace("/", "\0")))
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
        "assets/charts.css": chart_colours(),
        **notebook_pages(),
        **method_pages(),
        **command_pages(),
        **python_pages(),
        "reference/results_files.md": results_files(),
        "reference/http_api.md": http_api(),
        "concepts/lifecycle.md": lifecycle(),
        **registry_pages(),
        "reference/data_sets.md": data_sets(),
        **included_suites(),
        "reference/papers.md": papers(),
        "reference/suite_settings.md": suite_settings(),
        **results_pages(),
        **{
            f"project/{name}.md": text(f"{name}.md")
            for name in ("CONTRIBUTING", "CODE_OF_CONDUCT", "CHANGELOG", "SECURITY")
        },
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
    return "\n\n".join(part for parts in sections(documentation, defaults).values() for part in parts)


def sections(documentation: str, defaults: dict[str, Any] | None = None) -> dict[str, list[str]]:
    """Return the sections of a Google docstring as Markdown, by kind; headings of our own are kinds, too."""
    parts: dict[str, list[str]] = {}
    for section in griffe.Docstring(with_examples(documentation)).parse("google", warnings=False):
        kind, value = section.kind, section.value
        if kind is griffe.DocstringSectionKind.text:
            made = [value]
        elif kind in (griffe.DocstringSectionKind.parameters, griffe.DocstringSectionKind.attributes):
            rows = (
                [
                    f"`{option.name}`",
                    *([default(defaults, option.name)] if defaults is not None else []),
                    option.description,
                ]
                for option in value
            )
            made = [table(["option", *(["default"] if defaults is not None else []), "meaning"], rows)]
        elif kind is griffe.DocstringSectionKind.examples:
            made = [text if inner is griffe.DocstringSectionKind.text else code(text, "pycon") for inner, text in value]
        elif kind is griffe.DocstringSectionKind.admonition:
            name, contents = value.kind, value.contents
            if name == "loss":
                made = [equations(contents)]
            elif name == "paper-settings":
                rows = (line.partition(": ")[::2] for line in contents.splitlines())
                settings = [[f"`{name}`", said, default(defaults or {}, name)] for name, said in rows]
                made = [table(["option", "paper", "default here"], settings)]
            else:
                made = [contents]
            parts.setdefault(name, []).extend(made)
            continue
        else:
            continue
        parts.setdefault(kind.value, []).extend(made)
    return parts


def equations(latex: str) -> str:
    """Return lines of LaTeX as MathML, which browsers show without a script; an indented line continues the last."""
    lines = re.sub(r"\n +", " ", latex).splitlines()
    body = "".join(convert(line, display="block") for line in lines)
    return f'<div class="equations" tabindex="0" role="region" aria-label="Loss">{body}</div>'


def default(defaults: dict[str, Any], name: str) -> str:
    return f"`{defaults[name]}`" if name in defaults else "–"


def summary(documentation: str) -> str:
    return inspect.cleandoc(documentation).partition("\n\n")[0].replace("\n", " ")


# ---- notebooks


def notebook_pages() -> dict[str, str]:
    """Return a page for every notebook, with what its cells showed when `tools/notebooks.py` ran them."""
    made = {}
    for path in sorted((ROOT / "docs/notebooks").glob("*.ipynb")):
        first, *cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        parts = ["".join(first["source"]), f'<a href="{path.name}" download>Download this notebook</a>']
        for cell in cells:
            source = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                said = source
            parts += [source] if cell["cell_type"] == "markdown" else [code(source, "python")]
            parts += [shown(one, said) for one in cell.get("outputs", ())]
        made[f"notebooks/{path.stem}.md"] = "\n\n".join(parts) + "\n"
    return made


def shown(output: dict[str, Any], said: str) -> str:
    """Return what a cell shows: a chart, a table or text.

    Args:
        output: Of the cell.
        said: The text above the cell, which tells of a chart.
    """
    data = output.get("data", {})
    if drawing := "".join(data.get("image/svg+xml", ())):
        from limpet.reports.plots.rendering import for_page

        size = re.search(r'viewBox="0 0 ([\d.]+)', drawing)
        chart = for_page(drawing, "Chart", re.sub("[`*#\n]+", " ", said))
        return f'<div class="shown" style="max-width: {size[1] if size else 640}px">{chart}</div>'
    if page := "".join(data.get("text/html", ())):
        return f'<div class="shown" tabindex="0" role="group" aria-label="Output">{page}</div>'
    return f'<pre class="shown" tabindex="0">{escape("".join(output.get("text") or data["text/plain"]).rstrip())}</pre>'


def chart_colours() -> str:
    """Return the colours of charts as a style sheet of the site: those of reports, by the scheme that readers chose."""
    light, dark = re.findall(r":root\{(.*?)\}", text("src/limpet/reports/templates/style.css"), flags=re.S)[:2]
    return f':root {{{light}}}\n[data-md-color-scheme="slate"] {{{dark}}}\n'


# ---- methods


def method_pages() -> dict[str, str]:
    from limpet.methods import METHODS, describe

    rows, made = [], {}
    for name in METHODS.places:
        told = describe(name)
        told_of = sections(told.documentation, told.options)
        about = summary(told.documentation)
        rows.append(
            [
                f"[{name}]({name}.md)",
                about,
                "sessions" if told.sessions_only else "one upgrade",
                ", ".join(sorted(told.spaces)),
            ]
        )
        module = METHODS[name].__module__.replace(".", "/")
        facts = [
            ["Spaces", ", ".join(sorted(told.spaces))],
            ["Used for", "sessions only" if told.sessions_only else "one upgrade, chains of upgrades, sessions"],
            ["Old model", "required" if told.needs_old else "not required"],
            [
                "Class labels",
                "required" if METHODS[name].without_classes is None else "not required: pairs of texts work",
            ],
            ["Reads", f"embeddings and labels; {needs(METHODS[name]())}"],
            ["Source", f"[one file](../../src/{module}.py)"],
        ]
        chapters = {
            "Loss": [*told_of.get("loss", []), "[Symbols](index.md#symbols)"] if "loss" in told_of else [],
            "Example": [code(example(name), "python")],
            "Parameters": told_of.get("parameters", []),
            "The paper's settings and ours": told_of.get("paper-settings", []),
            "Departures from the paper": told_of.get("departures", []),
            "Measured": [*picture(name), measured(name)],
        }
        parts = [
            f"# {name}",
            *told_of["text"],
            "\n".join(f"- **{fact}**: {said}" for fact, said in facts),
            *(part for heading, body in chapters.items() if body for part in (f"## {heading}", *body)),
        ]
        made[f"methods/{name}.md"] = linked_papers("\n\n".join(parts) + "\n")
    head = text("docs/methods/index.md.in")
    listed = linked_papers(table(["method", "what it does", "for", "spaces"], rows))
    made["methods/index.md"] = head.replace("METHODS", listed)
    return made


def linked_papers(markdown: str) -> str:
    return re.sub(r"\barXiv:(\d{4}\.\d{4,5})", r"[arXiv:\1](https://arxiv.org/abs/\1)", markdown)


EXTRAS = (
    "",
    "own_embeddings=old, own_labels=labels",
    "old_classifier=torch.nn.Linear(16, 12), old_classes=range(12)",
)
"""What some methods need beside old embeddings: the old training set, or the old classifier."""


def example(name: str) -> str:
    """Return code that trains by a method for one step, with what it needs; it ran.

    Raises:
        LimpetError: The method needs something else.
    """
    from limpet.methods import METHODS

    method = METHODS[name]()
    reads, own = method.reads, {hook for kind in type(method).__mro__[:-1] for hook in vars(kind)
                                if kind.__module__ == type(method).__module__}  # fmt: skip
    makes = [f'"{name}"', "old_embeddings=old", "old_labels=labels"]
    makes += ['classifier="normalised"'] * ("head" in reads)
    makes += ['space="lorentz"'] * ("hypersphere" not in method.spaces)
    makes += ["model=model"] * bool(own & {"penalty", "after_step", "on_session_end"})
    epoch = ["0", "of=5", *["steps=1"] * ("progress" in reads)]
    epoch += ["new_embeddings=model(items)"] * ("new_embeddings" in reads)
    call = ["model(items)", "labels", *["index=torch.arange(120)"] * bool(reads & {"index", "old"})]
    for extra in EXTRAS:
        lines = [
            "import torch",
            "from limpet import CompatibilityLoss",
            "",
            "items, labels = torch.randn(120, 32), torch.arange(120) % 12",
            "old, model = 0.1 * torch.randn(120, 16), torch.nn.Linear(32, 16)",
            f"loss = CompatibilityLoss({', '.join([*makes, *filter(None, [extra])])})",
            *[f"loss.start_epoch({', '.join(epoch)})"] * bool(reads & {"epoch", "progress", "new_embeddings"}),
            *["items = loss.change_inputs(items, labels)"] * ("change_inputs" in own),
            f"loss({', '.join(call)}).backward()",
        ]
        try:
            exec("\n".join(lines), {})
        except LimpetError:
            if extra == EXTRAS[-1]:
                raise
        else:
            return "\n".join(lines)
    raise AssertionError


def needs(method: CompatibilityMethod) -> str:
    """Return in words what a method reads, with its default options, beside embeddings and labels."""
    from limpet.training.compatibility_loss import WANTED

    return "; ".join(words for read, (words, _) in WANTED.items() if read in method.reads) or "nothing"


SCORES = {
    "self (old)": "self (old)",
    "cross": "cross",
    "self (new)": "self (new)",
    "self": "self (new)",
    "after backfill": "self (new)",
    "compatible": "compatible",
    "AR@1": "AR@1",
    "forgetting": "forgetting",
}
"""Columns of tables of results that pages of methods show, and what they are called there."""


def measured(name: str) -> str:
    """Return one table: the row of a method in every table of results, with its scores."""
    found = []
    for place, chapter, heading, lines in measured_tables():
        head, *rows = (re.split(r" *(?<!\\)\| *", line.strip().strip("|").strip()) for line in lines)
        own = [row for row, line in zip(rows[1:], lines[2:], strict=True) if is_row_of(line, name)]
        scores = {SCORES[one]: column for column, one in enumerate(head) if one in SCORES}
        if own and scores:
            row = next((one for one in own if one[0].strip("*") == name), own[0])
            told = f"[{heading or 'mean of all settings'}](../../{place}#{anchor(f'# {heading or chapter}')})"
            found.append((chapter, told, row[0], {one: row[column] for one, column in scores.items()}))
    if not found:
        return "No table of results has a row of it yet."
    columns = [one for one in dict.fromkeys(SCORES.values()) if any(one in scores for *_, scores in found)]
    rows = ([*words, *(scores.get(one, "") for one in columns)] for *words, scores in found)
    note = "Metrics and scales differ between experiments: compare scores of one setting, on the page that it links to."
    return f"{note}\n\n{table(['experiment', 'setting', 'row', *columns], rows)}"


AXES = (
    ("cross", "self (new)", "cross: new queries on the old index →", "self: after re-embedding →"),
    ("AR@1", "forgetting", "AR@1: recall over all sessions →", "forgetting →"),
)
"""Pairs of columns that a picture compares methods by, and what they are called there."""


@cache
def picture(name: str) -> tuple[str, ...]:
    """Return a picture of a method among the others of its first experiment; nothing without one."""
    found = []
    for place, chapter, heading, lines in measured_tables():
        head, *rows = (re.split(r" *(?<!\\)\| *", line.strip().strip("|").strip()) for line in lines)
        for x, y, *titles in AXES:
            if {x, y} <= set(head) and any(is_row_of(line, name) for line in lines[2:]):
                points = [
                    {"name": plain(row[0]), "own": is_row_of(line, name)}
                    | {axis: number(row[head.index(column)]) for axis, column in (("x", x), ("y", y))}
                    for row, line in zip(rows[1:], lines[2:], strict=True)
                ]
                old = number(rows[1][head.index("self (old)")]) if "self (old)" in head else None
                found.append(
                    (len(points), f"{chapter}{f', {heading.lower()}' if heading else ''}", place, points, old, titles)
                )
    if not found:
        return ()
    _, called, place, points, old, (x_title, y_title) = next((one for one in found if one[0] > 3), found[0])
    points = [
        one for one in points if None not in (one["x"], one["y"]) and (one["own"] or one["name"] != "independent")
    ]
    own = next((one for one in points if one["own"]), None)
    if own is None or len(points) < 3:
        return ()
    points = [one for one in points if one is own or not one["own"]]
    title = f"{name} among {len(points) - 1} others"
    told = f"{called}. {x_title.rstrip(' →')}: {own['x']}; {y_title.rstrip(' →')}: {own['y']}."
    drawing = scatter(points, old, x_title, y_title)
    from limpet.reports.plots.rendering import for_page

    caption = f"<small>{name} among the other methods of [{called}](../../{place}); the line is the old model.</small>"
    if old is None:
        caption = caption.replace("; the line is the old model", "")
    return f'<div class="chart-of-methods">{for_page(drawing, title, told)}</div>', caption


WIDTH, HEIGHT = 480, 270
"""Of pictures, in pixels."""


def scatter(points: list[dict[str, Any]], old: float | None, x_title: str, y_title: str) -> str:
    """Return methods as SVG, one dot each, the own one in colour; names stand where they cover no other."""
    import altair as alt
    import vl_convert

    from limpet.reports.plots.style import CROSS, HAIR, INK, OLD, SOFT, width_of

    def limits(values: list[float]) -> tuple[float, float]:
        room = (max(values) - min(values)) / 10 or 0.01
        return min(values) - room, max(values) + room

    x, y = limits([one["x"] for one in points] + [old] * (old is not None)), limits([one["y"] for one in points])
    used: list[tuple[float, float, float]] = []
    for one in sorted(points, key=lambda one: not one["own"]):
        left, down = WIDTH * (one["x"] - x[0]) / (x[1] - x[0]), HEIGHT * (y[1] - one["y"]) / (y[1] - y[0])
        right = left + 12 + width_of(one["name"], 13 if one["own"] else 10)
        free = all(right < start or left > end or abs(down - at) > 13 for start, end, at in used)
        one["label"] = one["name"] if one["own"] or (free and right < WIDTH) else ""
        used.append((left - 5, right if one["label"] else left + 5, down))
    every = alt.Chart(alt.Data(values=points)).encode(
        alt.X("x:Q", title=x_title, scale=alt.Scale(domain=x, nice=False)),
        alt.Y("y:Q", title=y_title, scale=alt.Scale(domain=y, nice=False)),
        description="name:N",
    )
    others, own = every.transform_filter("!datum.own"), every.transform_filter("datum.own")
    layers = [
        others.mark_circle(size=45, color=OLD, opacity=1),
        others.mark_text(align="left", dx=7, fontSize=10, color=SOFT).encode(text="label:N"),
        own.mark_circle(size=110, color=CROSS, opacity=1),
        own.mark_text(align="left", dx=9, fontSize=13, fontWeight="bold", color=INK).encode(text="name:N"),
    ]
    if old is not None:
        line = alt.Chart(alt.Data(values=[{"x": old}])).mark_rule(color=OLD, strokeDash=[4, 3])
        layers.insert(0, line.encode(alt.X("x:Q", scale=alt.Scale(domain=x, nice=False))))
    chart = alt.layer(*layers).properties(width=WIDTH, height=HEIGHT).configure_view(stroke=None)
    chart = chart.configure_axis(gridColor=HAIR, domainColor=HAIR, tickColor=HAIR, labelColor=SOFT, titleColor=SOFT,
                                 titleFontWeight="normal", tickCount=5)  # fmt: skip
    return vl_convert.vegalite_to_svg(chart.to_json())


def plain(cell: str) -> str:
    return re.sub(r"[*`\\]", "", cell).partition(",")[0].partition(" (")[0]


def number(cell: str) -> float | None:
    """Return the mean that a cell shows, None for a cell without one."""
    found = re.search(r"[-+−]?\d+\.\d+", cell)
    return float(found[0].replace("−", "-")) if found else None


@cache
def measured_tables() -> list[tuple[str, str, str, list[str]]]:
    """Return the tables of results with a row per method: file, title of the page, heading and lines of each."""
    return [
        (path.relative_to(ROOT).as_posix(), *one)
        for pattern in MEASURED
        for path in sorted((ROOT / RESULTS).glob(pattern))
        for one in tables(path.read_text(encoding="utf-8"))
    ]


def is_row_of(line: str, name: str) -> bool:
    cell = line.split("|")[1].strip().strip("*").replace("\\", "").removeprefix("head ")
    return cell == name or cell.startswith((f"{name},", f"{name} "))


def tables(markdown: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the title of the page and the heading above each table, and its lines."""
    heading = chapter = ""
    lines: list[str] = []
    for line in [*markdown.splitlines(), ""]:
        if line.startswith("|"):
            lines.append(line)
            continue
        if lines:
            yield chapter, heading, lines
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
    found = [lines for part in parts if heading in (None, anchor(part)) for *_, lines in tables(part)]
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
            program([*words, "--help-all" if words and (program is not main or path_of(words)) else "--help"])
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
        parts = [f"# limpet {command}", command_help(said, f"limpet {command}")]
        for name in subcommands(said, command):
            if (of_it := help_of(command, name)) not in ("", said):
                parts += [f"## limpet {command} {name}", command_help(of_it, f"limpet {command} {name}")]
        made[f"reference/commands/{command}.md"] = "\n\n".join(parts)
    said = help_of(program=bench)
    parts = ["# limpet-bench", command_help(said, "limpet-bench")]
    for command in subcommands(said):
        parts += [
            f"## limpet-bench {command}",
            command_help(help_of(command, program=bench), f"limpet-bench {command}"),
        ]
    made["reference/commands/limpet-bench.md"] = "\n\n".join(parts)
    return made


def command_help(said: str, command: str) -> str:
    r"""Return a help as Markdown: a table for every group of options, and an anchor for every option.

    >>> print(command_help("Usage: limpet upgrade swap URL\n\nActivate it.\n\nParameters:\n"
    ... "  --model MODEL           What makes it. (default: a)\n", "limpet upgrade swap").rpartition("\n\n")[2])
    | option | default | what it does |
    | --- | --- | --- |
    | `--model MODEL`{ #limpet-upgrade-swap-model } | `a` | What makes it. |
    """
    parts = []
    for block in said.strip().split("\n\n"):
        title, _, rest = block.partition("\n")
        if title.startswith(("Usage: ", "usage: ")):
            parts.append(code(title[len("Usage: ") :], "console"))
        elif title == "Examples:":
            parts += ["**Examples**", code("\n".join(line.strip() for line in rest.splitlines()), "console")]
        elif title == "General:":
            parts.append("The [options of every command](../command_line.md) work here, too.")
        elif block.startswith("  ") or re.fullmatch(r"[A-Z][\w ,-]*:", title):
            named = not block.startswith("  ")
            rows = [[name, *defaulted(about)] for name, about in help_entries(rest if named else block)]
            listed = [[option_cell(name, command, title), shown, about] for name, shown, about in rows]
            head = ["option" if any(name.startswith("-") for name, *_ in rows) else "name", "default", "what it does"]
            if not any(shown for _, shown, _ in rows):
                head, listed = [head[0], head[2]], [[name, about] for name, _, about in listed]
            parts += [f"**{title.rstrip(':')}**"] * named + [table(head, listed)]
        else:
            parts.append(" ".join(block.split()))
    return "\n\n".join(parts)


def help_entries(lines: str) -> Iterator[tuple[str, str]]:
    """Yield the names and the descriptions that a group of a help lists."""
    for entry in re.split(r"^(?=  \S)", lines, flags=re.M):
        if entry.strip():
            first, *more = entry.splitlines()
            name, _, about = first.strip().partition("  ")
            yield name, " ".join([about.strip(), *map(str.strip, more)]).strip()


def defaulted(about: str) -> tuple[str, str]:
    """Return a default, or that there is none, and what else a description says."""
    found = re.search(r" ?\((?:default: ([^()]*(?:\([^()]*\))?[^()]*)|(required))\)", about)
    if found is None:
        return "", about
    return f"`{found[1]}`" if found[1] else "required", about[: found.start()] + about[found.end() :]


def option_cell(name: str, command: str, title: str) -> str:
    """Return a name with an anchor of its own, or a link to what is said about a command."""
    place = "-".join([*command.split(), name.split()[0].lower().strip("-")])
    if title == "Commands:" or title.startswith("  "):
        return f"[`{name}`](#{place})"
    return f"`{name}`{{ #{place} }}" if re.fullmatch(r"[\w-]+", place) else f"`{name}`"


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
        if len(entries) > LARGE:
            parts_of: dict[str, list[str]] = {}
            for entry in entries:
                name = entry.rpartition(".")[2]
                home = str(getattr(getattr(importlib.import_module(module), name), "__module__", ""))
                inner = home.removeprefix(f"{module}.") if home.startswith(f"{module}.") else "other"
                parts_of.setdefault(inner.partition(".")[0], []).append(entry)
                value = getattr(importlib.import_module(module), name)
                said = summary(value.__doc__ or "") if inspect.isclass(value) or inspect.isfunction(value) else ""
                listed.append(f"- [`{name}`][{entry.removeprefix('::: ')}]{': ' * bool(said)}{said}")
            for part, ours in parts_of.items():
                pages[f"reference/python/{module}/{part}.md"] = "\n\n".join([f"# {module}: {part}", *ours]) + "\n"
            entries = []
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
    return "\n\n".join([*texts, table(["key", "type", "meaning"], rows)])


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


def http_api() -> str:
    """Return the page of the service's API, from its description."""
    described = json.loads(text("docs/reference/openapi.json"))
    schemas = described["components"]["schemas"]
    parts = [
        "# The HTTP API",
        "Requests that [`limpet serve`](../tutorials/service.md) answers. Errors are "
        "[problem documents](https://www.rfc-editor.org/rfc/rfc9457) with `title`, `expected`, `to_do` and `intact`; "
        "their `type` names the class of the error. [openapi.json](openapi.json) describes all of it for programs.",
    ]
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            [right] = operation["security"][0]["HTTPBearer"]
            parts += [f"## `{method.upper()} {path}`", f"{operation['description']} Needs a key that may {right}."]
            given = [(f"`{one['name']}` ({one['in']})", kind_of(one["schema"]), one.get("description", ""))
                     for one in operation.get("parameters", ())]  # fmt: skip
            for kind, content in operation.get("requestBody", {}).get("content", {}).items():
                schema = schemas.get(content["schema"].get("$ref", "").rpartition("/")[2], content["schema"])
                fields = [(f"`{name}`", kind_of(one), one.get("description", ""))
                          for name, one in schema.get("properties", {}).items()]  # fmt: skip
                given += fields or [(f"`{kind}`", kind_of(schema), schema.get("description", ""))]
            parts += [table(["parameter or field", "type", "what it is"], given)] if given else []
            contents = [one["content"] for one in operation["responses"].values() if "content" in one]
            answer = contents[0].get("application/json", {}).get("schema", {}) if contents else {}
            named = schemas.get(answer.get("$ref", "").rpartition("/")[2], {})
            fields = [(f"`{name}`", kind_of(one), one.get("description", "")) for name, one in
                      named.get("properties", {}).items()]  # fmt: skip
            parts += ["The answer:", table(["field", "type", "what it is"], fields)] if fields else []
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def kind_of(schema: dict[str, Any]) -> str:
    """Return the type of a value as JSON Schema names it.

    >>> kind_of({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]})
    'array of string or null'
    """
    if "anyOf" in schema:
        return " or ".join(map(kind_of, schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    within = schema.get("items", {})
    return f"array of {kind_of(within)}" if within else str(schema.get("type", "any"))


def registry_pages() -> dict[str, str]:
    """Return a page for every kind of part that people choose by name: what each does, its options, and an example."""
    made = {}
    for page in ("adapters", "heads", "metrics", "protocols", "stores"):
        parts = [text(f"docs/reference/{page}.md.in").rstrip()]
        for name, part, options in entries(page):
            told = sections(part.__doc__ or "", options)
            if page == "stores":  # opened by a URL
                told.pop("parameters", None)
            parts += [f"## {name}", f"`{part.__module__}.{part.__qualname__}`"]
            parts += [
                re.sub(r"(?<!\[)arXiv:([\d.]+\d)", r"[\g<0>](https://arxiv.org/abs/\1)", one) if kind == "text" else one
                for kind, several in told.items()
                for one in several
            ]
        made[f"reference/{page}.md"] = "\n\n".join(parts) + "\n"
    return made


def entries(page: str) -> Iterator[tuple[str, Any, dict[str, Any] | None]]:
    """Yield name, part, and options with their defaults, where these are shown, of all parts of a kind."""
    from dataclasses import MISSING, fields, is_dataclass

    from limpet.adapters import ADAPTERS
    from limpet.engines.collections import ENGINES
    from limpet.engines.stores import STORES
    from limpet.evaluation import metrics
    from limpet.evaluation.protocols import PROTOCOLS
    from limpet.models.heads import HEADS

    kinds = {
        "adapters": [ADAPTERS],
        "heads": [HEADS],
        "metrics": [metrics.METRICS, metrics.FAMILIES],
        "protocols": [PROTOCOLS],
        "stores": [STORES, ENGINES],
    }
    for registry in kinds[page]:
        if page == "protocols":
            registry.import_installed()
        for name, part in registry.items():
            made = getattr(part, "__qualname__", "").partition(".")[0]  # a metric without k is made by a function
            documented = getattr(metrics, made, part) if page == "metrics" else part
            if is_dataclass(part):
                options = {one.name: one.default for one in fields(part) if one.default is not MISSING}
            else:
                taken = inspect.signature(documented).parameters.values()
                options = {one.name: one.default for one in taken if one.default is not one.empty}
            yield name, documented, options if page in ("adapters", "heads", "protocols") else None


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


def included_suites() -> dict[str, str]:
    """Return a list of the built-in suites, and a page for every module of them."""
    from limpet_bench.suites import SUITES

    listed, made = [], {}
    for name, suite in shipped_suites().items():
        page = f"reference/suites/{SUITES[name].__module__.rpartition('.')[2]}.md"
        listed.append([f"[{name}](suites/{posixpath.basename(page)}#{name})", suite.title])
        made.setdefault(page, [f"# Suites of {posixpath.basename(page).removesuffix('.md')}"]).extend(
            [
                f"## {name} {{ #{name} }}",
                f"**{suite.title}.** {suite.description}",
                code(inspect.getsource(SUITES[name]), "python"),
            ]
        )
    index = [text("docs/reference/included_suites.md.in").rstrip(), table(["suite", "what it is"], listed)]
    return {
        "reference/included_suites.md": "\n\n".join(index) + "\n",
        **{page: "\n\n".join(parts) + "\n" for page, parts in made.items()},
    }


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
