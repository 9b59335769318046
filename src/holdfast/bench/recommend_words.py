"""The sentences of a recommendation, for an engineer who has to decide whether to believe it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.bench.cases import Case
from holdfast.bench.leaderboard import Facts
from holdfast.bench.merit import best_there, keeps_quality, mean_of
from holdfast.bench.situation import Distance, Situation
from holdfast.wording import whole_percent

if TYPE_CHECKING:
    from holdfast.bench.recommend import Action, Choice, Spread, Standing

ENOUGH = 3
"""Fewer data sets, or seeds, than this are called few."""
FAR = 10.0
"""A data set with so many times more or fewer classes, or images per class, is called far."""
FAR_SHARE = 2.0
"""The same of the share of the classes that the old model learnt."""


def headline(situation: Situation, action: Action, choice: Choice) -> Iterator[str]:
    """Say what to do, and what it rests on."""
    yield from _REASONS[action](situation)
    if choice.chosen is None:
        return
    yield from _standing(choice, choice.chosen)
    yield from _options(choice, choice.chosen)
    yield from _group(choice)


def _train(_: Situation) -> Iterator[str]:
    return iter(())


def _adapt(situation: Situation) -> Iterator[str]:
    if situation.labelled:
        yield (
            "Run `holdfast adapt`: between two frozen models only an adapter or a head is learnt, in seconds, so all "
            "can be compared on your own items. That tells more than other people's data."
        )
        return
    yield (
        "Run `holdfast adapt`: every method of the benches learns from classes, and your items have none. Adapters are "
        "fitted to pairs of vectors alone."
    )
    if not situation.frozen:
        yield "Train the new model as you like, embed the same items with both models, and give it these."


def _measure(_: Situation) -> Iterator[str]:
    yield "There is no evidence to go by: compare methods on your own data."


_REASONS = {"train": _train, "adapt": _adapt, "measure": _measure}


def _standing(choice: Choice, chosen: Standing) -> Iterator[str]:
    label, cases = chosen.name.label, choice.cases
    allowed = sum(one.rank is not None for one in choice.table)
    if not chosen.keeps:
        yield (
            "No method kept P_up at −0.05 or above, so that with the highest P_up is taken: every one costs the new "
            "model more than 5 % of its own quality."
        )
    heads = all(case.track == "features" for case in cases)
    yield (
        f"{'Of heads, take' if heads else 'Train with'} '{label}': mean raw P_comp {spread_words(chosen.p_comp)}, mean "
        f"raw P_up {spread_words(chosen.p_up)}, over {counted(len(cases), 'case')} of "
        f"{counted(len({case.trained_on for case in cases}), 'data set')}."
    )
    yield (
        f"Among the {counted(allowed, 'label')} that may be chosen it was the best in {chosen.best} of "
        f"{counted(len(cases), 'case')}."
    )
    if chosen.p_comp.mean <= 0:
        yield (
            "Its P_comp is not above 0: on the old gallery its queries found no more than the old model's. Expect that "
            "the upgrade pays only after the gallery is embedded anew."
        )


def _options(choice: Choice, chosen: Standing) -> Iterator[str]:
    """Say which options and settings it had, and which were not the same in all cases."""
    outcomes = [case.outcomes[chosen.name] for case in choice.cases]
    values = [{**outcome.options, **outcome.settings} for outcome in outcomes]
    for option in dict.fromkeys(name for known in values for name in known):
        found = [known.get(option, "not set") for known in values]
        if any(value != found[0] for value in found):
            where = ", ".join(f"{value} on {case.trained_on}" for value, case in zip(found, choice.cases, strict=True))
            yield f"Its option {option} was {where}: try more than one value."
    changes, settings = outcomes[0].changes, outcomes[0].settings
    tuned = {name: value for name, value in settings.items() if name in changes}
    written = {name: value for name, value in settings.items() if name not in changes}
    if written:
        yield f"It is set otherwise than the method alone: {named_values(written)}."
    if tuned:
        where = choice.cases[0].trained_on
        yield f"On {where} it was trained with {named_values(tuned)}, chosen on validation classes."


def _group(choice: Choice) -> Iterator[str]:
    chosen, cheapest = choice.chosen, choice.cheapest
    others = [one.name.label for one in choice.group if one is not chosen]
    if chosen is None or cheapest is None or not others:
        return
    single = any(len(case.seeds) < 2 for case in choice.cases)
    why = "with one seed nothing tells how far chance reaches" if single else "the lead is within the chance of seeds"
    cost = "" if cheapest.seconds is None else f" ({cheapest.seconds:,.0f} s a run)"
    yield (
        f"'{chosen.name.label}' cannot be told apart from {listed(others)}: {why}. The cheapest of the group is "
        f"'{cheapest.name.label}'{cost}."
    )


def thin_words(situation: Situation, choice: Choice) -> Iterator[str]:
    """Say where the evidence is thin."""
    if not choice.cases:
        return
    yield from _few(choice.cases)
    yield from _near_the_bound(choice)
    yield from _kind(situation, choice)
    yield from _size(situation, choice.near.cases)
    yield from _old(situation, choice.cases)
    yield from _left(choice)


def _few(cases: Sequence[Case]) -> Iterator[str]:
    data = list(dict.fromkeys(case.trained_on for case in cases))
    if len(data) < ENOUGH:
        yield f"It rests on {counted(len(data), 'data set')} ({listed(data)}): on others the order may be another."
    seeds = min(len(case.seeds) for case in cases)
    if seeds < ENOUGH:
        yield f"Some of it was run with {counted(seeds, 'seed')} only."
    for case in cases:
        if case.undefined:
            yield (
                f"{case.words}: {counted(len(case.undefined), 'seed')} did not count, since the new recipe alone was "
                "no better than the old model, and P_comp is not defined."
            )
    metrics = sorted({case.metric for case in cases})
    if len(metrics) > 1:
        yield f"Its cases were measured by different metrics: {listed(metrics)}."


def _near_the_bound(choice: Choice) -> Iterator[str]:
    chosen = choice.chosen
    if chosen is None or not chosen.keeps or chosen.p_up.deviation is None:
        return
    if not keeps_quality(chosen.p_up.mean - chosen.p_up.deviation):
        yield f"The P_up of '{chosen.name.label}' is so near to −0.05 that other seeds could take it below."


def _kind(situation: Situation, choice: Choice) -> Iterator[str]:
    nearest, far = choice.near.cases[0]
    if far.scenario:
        kind = "one of the same kind" if far.scenario == 1 else "one of another kind"
        found = listed(sorted({case.scenario for case in choice.cases}))
        yield f"None of the evidence is of the scenario '{situation.scenario}'; it is of {found}, {kind}."
    if far.track:
        trained = {"images": "models trained on images", "features": "heads over frozen models"}
        yield f"The evidence is of {trained.get(nearest.track, nearest.track)}, and your case is another."


def _size(situation: Situation, cases: Sequence[tuple[Case, Distance]]) -> Iterator[str]:
    nearest, far = cases[0]
    if situation.classes is None:
        yield "How large your data is was not said, so data sets of all sizes count alike."
    elif nearest.facts is None:
        yield f"It is not known how large {nearest.trained_on} is."
    elif any(factor and max(factor, 1 / factor) > FAR for factor in (far.classes, far.per_class)):
        yield (
            f"The nearest data set, {nearest.trained_on}, is far in size: {size_words(nearest.facts)}, yours "
            f"{_own_size(situation)}."
        )


def _own_size(situation: Situation) -> str:
    if situation.images is None:
        return f"{situation.classes:,} classes"
    return size_words(Facts(images=situation.images, classes=situation.classes or 1))


def _old(situation: Situation, cases: Sequence[Case]) -> Iterator[str]:
    known = [case.old_quality for case in cases if case.old_quality is not None]
    quality = situation.old_quality
    if quality is not None and known and not min(known) <= quality <= max(known):
        ends = " to ".join(sorted({f"{value:.3f}" for value in (min(known), max(known))}))
        yield (
            f"Your old model reaches {quality:.3f}, those of the evidence {ends} "
            f"({cases[0].metric}): a better old model leaves less to gain, a worse one holds the new one back more."
        )
    facts = cases[0].facts
    if situation.old_classes and situation.classes and facts is not None and facts.old_classes:
        own, theirs = situation.old_classes / situation.classes, facts.old_classes / facts.classes
        if max(own / theirs, theirs / own) > FAR_SHARE:
            yield (
                f"Your old model learnt {whole_percent(own)} as many classes as the new one is to, that of "
                f"{cases[0].trained_on} {whole_percent(theirs)}."
            )


def _left(choice: Choice) -> Iterator[str]:
    for name, why in choice.left_out.items():
        yield f"'{name.label}' was not compared: {why}."
    for case in choice.near.sparse:
        yield f"Left aside, with few labels: {case.words}{_there(case, choice)}."
    for case in choice.near.apart:
        yield f"Left aside, since no label was run there and on all nearer data: {case.words}{_there(case, choice)}."


def _there(case: Case, choice: Choice) -> str:
    """Say what the chosen label came to in a case that was left aside."""
    best, chosen = best_there(case), choice.chosen
    if chosen is None or chosen.name not in case.complete:
        return ""
    found = {name: f"P_comp {_signed(mean_of(case, name, 'p_comp'))} and P_up {_signed(mean_of(case, name, 'p_up'))}"
             for name in (chosen.name, best)}  # fmt: skip
    rest = "no label did better" if best == chosen.name else f"the best there is '{best.label}', {found[best]}"
    return f", where '{chosen.name.label}' has {found[chosen.name]}; {rest}"


def spread_words(found: Spread) -> str:
    """Write a mean with its deviation over seeds, and its range over cases where these differ.

    >>> from holdfast.bench.recommend import Spread
    >>> spread_words(Spread(0.109, 0.032, 0.05, 0.2)), spread_words(Spread(-0.5, None, -0.5, -0.5))
    ('+0.109 ± 0.032 (+0.050 to +0.200)', '−0.500')
    """
    deviation = "" if found.deviation is None else f" ± {found.deviation:.3f}"
    ends = "" if found.low == found.high else f" ({_signed(found.low)} to {_signed(found.high)})"
    return f"{_signed(found.mean)}{deviation}{ends}"


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def size_words(facts: Facts) -> str:
    """Write how large data is.

    >>> size_words(Facts(images=19280, classes=964))
    '964 classes of 20 images'
    """
    return f"{facts.classes:,} classes of {facts.per_class:,.3g} images"


def named_values(settings: Mapping[str, Any]) -> str:
    """Write settings with their values.

    >>> named_values({"recipe.learning_rate": 0.3, "head": "lorentz"})
    'recipe.learning_rate 0.3, head lorentz'
    """
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def counted(number: int, word: str) -> str:
    """Write a number of things.

    >>> counted(1, "seed"), counted(3, "seed")
    ('1 seed', '3 seeds')
    """
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def listed(names: Iterable[str]) -> str:
    """Write names one after another.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
