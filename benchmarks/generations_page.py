"""From the records of generations.py to its pages: the matrices, their summaries, and heat maps beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from all_methods_tables import Document, Record, Task, markdown
from generations_tasks import CHAINS, METRICS, SCORE, TRAIN, geometry_of, independent_of, training_task
from limpet.evaluation.compatibility import average_compatibility, p_comp
from limpet.reports.formats import score, signed
from limpet.reports.plots.heat import heat_key, heat_map, heat_range, marked_by_criterion
from limpet.reports.plots.rendering import svg
from limpet.support.wording import metric_name

Matrix = NDArray[np.float64]
SPACE_NAMES = {"lorentz": "Lorentz space", "hypersphere": "hypersphere"}
LAYOUT = """.maps{display:grid;grid-template-columns:repeat(4,minmax(0,1fr));gap:28px 22px;margin-top:18px}
.maps figcaption{font-size:13px;margin-top:2px}.maps figcaption b{color:var(--ink)}
.key-of{max-width:640px}
@media (max-width:900px){.maps{grid-template-columns:repeat(2,minmax(0,1fr))}}
@media (max-width:640px){.maps{grid-template-columns:minmax(0,1fr)}.key-of{max-width:none}}
"""


class Results:
    """The matrices of a document by chain; those of chains that failed are left out."""

    def __init__(self, document: Document) -> None:
        self.document, self.seed = document, document["seed"]
        self.records = {Task.of(record): record for record in document["records"]}
        scored = {chain: self.records.get(Task(SCORE, "", self.seed, chain), {}) for chain in document["chains"]}
        self.scored = {chain: record for chain, record in scored.items() if "matrix" in record}

    def matrices(self, metric: str) -> dict[str, Matrix]:
        return {chain: np.array(record["matrix"][metric], np.float64) for chain, record in self.scored.items()}

    def independents(self, chain: str, metric: str) -> list[float] | None:
        record = self.records.get(Task(SCORE, "", self.seed, independent_of(CHAINS[chain].geometry)), {})
        return record["self"][metric] if "self" in record else None

    def p_comp(self, metric: str) -> dict[str, Matrix]:
        """Return raw P_comp below the diagonal: M[i, j] between self of j and the independent generation i."""
        found = {}
        for chain, matrix in self.matrices(metric).items():
            alone = self.independents(chain, metric)
            if alone is not None:
                shares = p_comp(matrix, np.diag(matrix)[None, :], np.array(alone)[:, None])
                found[chain] = np.where(np.tri(len(matrix), k=-1, dtype=bool), shares, np.nan)
        return found

    def training(self, chain: str, generation: int) -> Record:
        return self.records.get(training_task(chain, generation, self.seed), {})

    def generations(self) -> list[int]:
        return list(range(1, len(self.document["shares"]) + 1))

    def failures(self) -> list[str]:
        return [f"{task.name}: {record['failure'].splitlines()[0]}" for task, record in self.records.items()
                if "failure" in record]  # fmt: skip


def titled(chain: str) -> str:
    return f"{chain} ({SPACE_NAMES[geometry_of(chain)]})"


def share(value: float) -> str:
    """Write a P_comp with two digits, as fits a cell."""
    return f"{value:+.2f}".replace("-", "−")


def pairs_in_words(matrix: Matrix) -> str:
    marked = marked_by_criterion(matrix)
    return f"{marked.sum()} of {len(matrix) * (len(matrix) - 1) // 2}"


def introduction(results: Results) -> list[str]:
    """Return the paragraphs that both pages begin with."""
    document = results.document
    one = next((record for task, record in results.records.items() if task.phase == TRAIN and "queries" in record), {})
    small, large = (document["models"][number]["backbone_options"]["filters"] for number in ("1", "5"))
    rest = ", ".join(f"{share:.0%}".replace("%", " %") for share in document["shares"])
    return [
        f"Five generations learn {rest} of Omniglot's characters for training, each aligned with the one before it and"
        f" with no other; the convolutional network has {small} filters in generations 1 to 3 and {large} from"
        " generation 4 on. Every generation is trained from scratch by the same recipe. Rows are generations by which"
        " queries are embedded, columns those that embedded the gallery:"
        f" {one.get('queries', 0):,} queries and a gallery of {one.get('gallery', 0):,} drawings of"
        f" {one.get('searched_classes', 0)} other characters. One seed, so small differences mean little.",
        "AC is the share of pairs i > j with a cross-test M[i, j] above the self-test M[j, j] (compatible), AM the mean"
        " of the triangle with its diagonal. The methods of the hypersphere share their first generation; hbct's has"
        " the Lorentz space. The paper changes from ResNet-18 to ResNet-50 at the third of five generations on"
        " CIFAR-100; a network that is only wider, at the fourth, is what fits a small machine.",
    ]


def p_comp_note() -> str:
    return (
        "P_comp[i, j] = (M[i, j] − M[j, j]) / (independent i − M[j, j]): 0 is what generation j had, 1 what a model"
        " like generation i reaches on its own gallery without any alignment. These references are ours, the paper does"
        " not state its own; there is one for every generation and geometry. A dash: it is no better than generation j."
    )


def markdown_page(document: Document) -> str:
    results = Results(document)
    parts = [["# Five generations in a row", "", *spaced(introduction(results))], generation_table(results)]
    parts.append(["## Summary", "", *summary_table(results)])
    for metric in METRICS:
        matrices = results.matrices(metric)
        parts.append([f"## {metric_name(metric)}", "", "Bold: compatible, that is above the diagonal of its column."])
        parts += [matrix_table(chain, matrix, marked_by_criterion(matrix), score) for chain, matrix in matrices.items()]
    shares = results.p_comp("map")
    if shares:
        parts.append(["## P_comp (raw, mAP)", "", p_comp_note(), "", "Bold: above 0."])
        parts += [matrix_table(chain, matrix, matrix > 0, share) for chain, matrix in shares.items()]
    parts.append(run(results))
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def spaced(paragraphs: list[str]) -> list[str]:
    return [line for paragraph in paragraphs for line in (paragraph, "")][:-1]


def generation_table(results: Results) -> list[str]:
    rows = []
    for generation in results.generations():
        found = next(
            (r for c in results.document["chains"] if (r := results.training(c, generation)).get("images")), None
        )
        if found:
            filters = results.document["models"][str(generation)]["backbone_options"]["filters"]
            rows.append([str(generation), str(found["classes"]), f"{found['images']:,}", str(filters),
                         f"{found['parameters']:,}"])  # fmt: skip
    return markdown(["generation", "characters", "drawings", "filters", "parameters"], rows, numbers_from=1)


def summary_table(results: Results) -> list[str]:
    """Return AC, AM and the mean P_comp of every chain, and the self-test of its last generation."""
    shares, rows = results.p_comp("map"), []
    for chain in results.scored:
        cells = [titled(chain), options_in_words(results.document["options"][chain])]
        for metric in METRICS:
            matrix = results.matrices(metric)[chain]
            found = average_compatibility(matrix)
            cells += [f"{score(found.ac)} ({pairs_in_words(matrix)})", score(found.am), score(matrix[-1, -1])]
        cells.append(signed(float(np.nanmean(shares[chain]))) if chain in shares else "–")
        rows.append(cells)
    titles = [f"{title}, {metric_name(metric)}" for metric in METRICS for title in ("AC", "AM", "last self")]
    return markdown(["chain", "options", *titles, "mean P_comp, mAP"], rows, numbers_from=2)


def options_in_words(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in options.items()) or "defaults"


def matrix_table(chain: str, matrix: Matrix, marked: NDArray[np.bool_], form: Any) -> list[str]:
    rows = []
    for i, values in enumerate(matrix):
        cells = ["" if np.isnan(value) else form(value) for value in values]
        rows.append([str(i + 1), *(f"**{cell}**" if marked[i, j] and cell else cell for j, cell in enumerate(cells))])
    titles = ["query \\ gallery", *(str(j + 1) for j in range(len(matrix)))]
    return [f"**{titled(chain)}**", "", *markdown(titles, rows, numbers_from=1)]


def run(results: Results) -> list[str]:
    document = results.document
    recipe, model = document["recipe"], document["models"]["1"]
    return [
        "## Run",
        "",
        f"`{document['command']}`",
        "",
        f"- {model['image_size']} × {model['image_size']} pixels, {model['dim']} dimensions,"
        f" projection {model['projection']}; epochs"
        f" {document['epochs']}, batch {recipe['batch_size']}, SGD, learning rate {recipe['learning_rate']}"
        f" ({recipe['schedule']}, warm-up over {recipe['warmup_epochs']} epochs), seed {document['seed']}. Softmax head"
        " on the hypersphere, Lorentz regression on the Lorentz space, whose clip radius is 1.0 in the first generation"
        " and grows by 0.2 with each.",
        "- Options are those that [hyperbolic](hyperbolic.md) chose on validation classes; *defaults* where it was not"
        " run before.",
        f"- Machine: {document['machine']}.",
        f"- Time: {document['wall_seconds'] / 60:.1f} minutes for {len(document['records'])} tasks,"
        f" {document['processes']} at a time with one thread each.",
        *(f"- Failed: {failure}" for failure in results.failures()),
    ]


def html_page(document: Document) -> str:
    """Return the page of heat maps, self-contained: it needs no script and nothing from elsewhere."""
    results = Results(document)
    style = resources.files("limpet.reports").joinpath("templates/style.css").read_text(encoding="utf-8")
    maps = {metric_name(metric): results.matrices(metric) for metric in METRICS}
    sections = [section(name, name, matrices, score, "") for name, matrices in maps.items()]
    shares = results.p_comp("map")
    if shares:
        sections.append(section("P_comp (raw, mAP)", "P_comp", shares, share, p_comp_note()))
    lead = "".join(f'<p class="lead">{escape(paragraph)}</p>' for paragraph in introduction(results))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><title>Five generations in a row</title>\n'
        f'<style>{style}{LAYOUT}</style></head>\n<body><header class="top">'
        '<p class="overline">Sequential upgrades on Omniglot</p><h1>Five generations in a row</h1></header>\n<main>'
        f'<section><p class="headline">{escape(headline(results))}</p></section><section>{lead}</section>\n'
        f"{''.join(sections)}</main>\n"
        f"<footer>{escape(document['command'])} · {escape(document['machine'])}</footer></body></html>\n"
    )


def headline(results: Results) -> str:
    """Return how many pairs of every chain are compatible, by mAP."""
    counted = ", ".join(f"{pairs_in_words(m)} with {chain}" for chain, m in results.matrices("map").items())
    return f"Pairs of generations that are compatible by mAP: {counted}." if counted else "Nothing was measured."


def section(title: str, what: str, matrices: Mapping[str, Matrix], form: Any, note: str) -> str:
    """Return the heat maps of one kind of number, on one scale."""
    limits = heat_range(matrices.values())
    if limits is None:
        return ""
    figures = "".join(figures_of(what, matrices, form, limits))
    means = "compatible: above that gallery's own generation" if form is score else "above 0: compatible"
    keys = "".join(
        f'<div class="{kind}">{svg(heat_key(limits, what, mark_means=means, width=width, own=form is score))}</div>'
        for kind, width in (("wide", 640), ("narrow", 350))
    )
    told = f'<p class="lead">{escape(note)}</p>' if note else ""
    return (
        f'<section><h2>{escape(title)}</h2>{told}<div class="key-of">{keys}</div>'
        f'<div class="maps">{figures}</div></section>\n'
    )


def figures_of(what: str, matrices: Mapping[str, Matrix], form: Any, limits: tuple[float, float]) -> Iterator[str]:
    for chain, matrix in matrices.items():
        names = [str(number + 1) for number in range(len(matrix))]
        if form is score:
            marked, found = marked_by_criterion(matrix), average_compatibility(matrix)
            caption = f"AC <b>{score(found.ac)}</b>, AM <b>{score(found.am)}</b>"
        else:
            marked = matrix > 0
            caption = f"mean <b>{signed(float(np.nanmean(matrix)))}</b>"
        drawing = heat_map(titled(chain), matrix, names, limits, what=what, marked=marked, form=form)
        yield f"<figure>{svg(drawing)}<figcaption>{caption}</figcaption></figure>"
