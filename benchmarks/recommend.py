"""What `holdfast recommend` is worth: every data set left out in turn, and the method chosen from the others.

Reads the evidence that comes with the package, and more documents of benches if they are named; trains nothing.

    python benchmarks/recommend.py
    python benchmarks/recommend.py --evidence mine.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from holdfast.bench.cases import Evidence, shipped_evidence
from holdfast.bench.regret import ORACLE, RANDOM, RULE, Summary, plain, regret
from holdfast.bench.situation import NEAREST

RESULTS = Path(__file__).parent / "results"
COUNTS = {
    1: "the nearest data set",
    NEAREST: f"the nearest {NEAREST}, as `holdfast recommend` does",
    1_000: "all of the same scenario and track",
}

INTRODUCTION = """\
# Which method is recommended, and what that is worth

Every data set is left out in turn, with all its scenarios and in all suites. The rule of `holdfast recommend` then \
chooses a method from the others, of which it knows size, scenario and results, and is judged by what that method came \
to on the data set that was left out, beside always taking the same method and taking one at random.

- **violated** counts the cases where the chosen method's mean raw P_up is below −0.05. In {unavoidable} of {cases} \
cases no method kept it.
- **regret** is the mean raw P_comp of the best there minus that of the one chosen, averaged over the cases where that \
one kept P_up: what P_comp is bought with by violating it is no gain. *The best there* is what the same rule takes \
when it knows the results. The unit is that of P_comp: 1 is all that there is to be gained on a data set.
- **best** counts the cases where nothing was better there.
- **missing** counts the cases where nothing was chosen (no evidence of other data), or a method that was not run \
there or that failed. Rows with any stand below.

A method stands for itself as it was tuned on the data set that was left out: judged is the choice of the method, not \
that of its options.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evidence", type=Path, nargs="*", default=[], help="further documents of benches")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of recommend.json and recommend.md")
    arguments = parser.parse_args()
    evidence = shipped_evidence(arguments.evidence)
    if not evidence.usable:
        raise SystemExit("There is no evidence: name documents of benches with --evidence.")
    document = measured(evidence)
    (arguments.out / "recommend.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    (arguments.out / "recommend.md").write_text(page(document), encoding="utf-8")
    print(page(document))


def measured(evidence: Evidence) -> dict[str, Any]:
    """Return what was found, with one, three and all data sets to go by."""
    found = {count: regret(evidence, nearest=count) for count in COUNTS}
    return {
        "command": "python benchmarks/recommend.py",
        "data": sorted({case.data for case in evidence.usable}),
        "suites": sorted({case.suite for case in evidence.usable}),
        "nearest": [{"count": count, "words": COUNTS[count], **plain(one)} for count, one in found.items()],
        "default": NEAREST,
    }


def page(document: dict[str, Any]) -> str:
    """Return the page in Markdown."""
    (default,) = [one for one in document["nearest"] if one["count"] == document["default"]]
    lines = [INTRODUCTION.format(unavoidable=default["unavoidable"], cases=len(default["cases"]))]
    lines.append(f"Suites: {', '.join(document['suites']) or 'none'}. Data: {', '.join(document['data']) or 'none'}.\n")
    lines += [_summaries(default), "\nThe same rule with fewer and with more data sets to go by:\n", _counts(document)]
    lines += ["\n## Every case\n", _cases(default), f"\n`{document['command']}`\n"]
    return "\n".join(lines)


def _summaries(found: dict[str, Any]) -> str:
    rows = [Summary(**one) for one in found["summaries"]]
    head = "| choice | violated | regret | worst | best | missing |\n| --- | ---: | ---: | ---: | ---: | ---: |"
    return "\n".join([head, *(f"| {_bold(one.strategy)} | {_numbers(one)} |" for one in rows)])


def _counts(document: dict[str, Any]) -> str:
    head = "| to go by | violated | regret | worst | best | missing |\n| --- | ---: | ---: | ---: | ---: | ---: |"
    rows = [(one["words"], Summary(**one["summaries"][0])) for one in document["nearest"] if one["summaries"]]
    return "\n".join([head, *(f"| {words} | {_numbers(one)} |" for words, one in rows)])


def _cases(found: dict[str, Any]) -> str:
    head = (
        "| left out | recommended | its P_comp | regret | P_up kept | the best there | its P_comp | regret at random |"
        "\n| --- | --- | ---: | ---: | --- | --- | ---: | ---: |"
    )
    rows = []
    for case in found["cases"]:
        rule, best, random = (case["outcomes"][name] for name in (RULE, ORACLE, RANDOM))
        kept = {None: "–", 0.0: "yes", 1.0: "no"}[rule["violated"]]
        cells = [rule["label"] or "–", _number(rule["p_comp"]), _number(rule["regret"]), kept]
        cells += [best["label"], _number(best["p_comp"]), _number(random["regret"])]
        rows.append(f"| {case['data']}, {case['scenario']} ({case['suite']}) | {' | '.join(cells)} |")
    return "\n".join([head, *rows])


def _numbers(one: Summary) -> str:
    counted = one.cases - one.missing
    best, violated = (f"{value:.3g} of {counted}" for value in (one.best, one.violated))
    return " | ".join([violated, _number(one.regret), _number(one.worst), best, str(one.missing)])


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}".replace("-", "−")


def _bold(name: str) -> str:
    return f"**{name}**" if name == RULE else name


if __name__ == "__main__":
    main()
