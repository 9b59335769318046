"""Recommendation for two models from measurements: adapt, train a head, re-embed, or keep the old model.

The thresholds are conventions of this project, not from a paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from limpet.adapters import Direction, SuspectPairs
from limpet.linking.compare import AGREEMENT, UNSEEN, Comparison, Effect, Loss, Measured
from limpet.results import Part
from limpet.support.wording import duration, metric_name, whole_percent

Action = Literal["adapt", "train a head", "re-embed", "keep the old model", "check the pairs"]

NO_RELATION = 0.8  # lower end of the share of suspect pairs from which nothing can be learned
SUSPECT = 0.2  # lower end above which the scores reflect the pairs more than the models


class Recommendation(Part):
    """A recommended action.

    Args:
        candidate: Candidate to use; None if the action needs none.
        sentences: Action, reasons and expectations, in this order.
        worse: Guards at which the action is clearly worse than the old model.
    """

    action: Action
    candidate: str | None
    sentences: tuple[str, ...]
    worse: tuple[Loss, ...] = ()


def recommend(comparison: Comparison, suspects: SuspectPairs | None = None) -> Recommendation:
    """Recommend the next step.

    If too many pairs are suspect, the recommendation is to check them first. A candidate helps if the whole interval of
    cross − self_old, corrected for the choice, is above 0; only the candidate with the highest cross of each kind is
    considered. A head is worth its training if no adapter helps or the whole interval of its lead over the best adapter
    is above 0. A candidate that is clearly worse on a guard yields to one that is not. If no candidate helps,
    the recommendation is to re-embed if the whole interval of self_new − self_old is above 0. Classes excluded from
    fitting count by their share of the held-out items.

    Args:
        comparison: The measurements.
        suspects: Share of the mismatched pairs; None if not measured.
    """
    words = Words(comparison)
    if suspects is not None and suspects.low >= NO_RELATION:
        return _recommendation("check the pairs", None, words.no_relation(suspects))
    if suspects is not None and suspects.low > SUSPECT:
        return _recommendation("check the pairs", None, words.suspect(suspects))
    adapter, head = _helping(comparison.best_adapter), _helping(comparison.best_head)
    if head and _preferred(head, adapter, comparison):
        return _recommendation("train a head", head, words.train(head))
    if adapter:
        return _recommendation("adapt", adapter, words.adapt(adapter))
    if comparison.self_new_minus_self_old.above_zero:
        return _recommendation("re-embed", None, words.re_embed())
    return _recommendation("keep the old model", None, words.keep())


def _recommendation(action: Action, candidate: Measured | None, sentences: Iterable[str]) -> Recommendation:
    name, worse = (candidate.name, candidate.worse) if candidate else (None, ())
    return Recommendation(action=action, candidate=name, sentences=tuple(sentences), worse=worse)


def _helping(best: Measured | None) -> Measured | None:
    return best if best and best.helps else None


def _preferred(head: Measured, adapter: Measured | None, comparison: Comparison) -> bool:
    """Return whether to train a helpful head rather than use an adapter."""
    if adapter is None or comparison.head_lead is None:
        return True
    if bool(head.worse) != bool(adapter.worse):
        return bool(adapter.worse)
    return comparison.head_lead.above_zero


_PASS: dict[Direction, str] = {
    "new_to_old": "pass the new model's queries through it: they then search the old gallery as it is.",
    "old_to_new": "pass the old gallery through it: the new model's queries then search that; nothing is re-embedded.",
}
_THEN: Mapping[Direction | None, str] = {
    None: ": they then search the old gallery as it is.",
    "old_to_new": ", and the old gallery through the adapter beside it: nothing is embedded anew.",
}
_LOOK = (
    "Look whether the ids of one side are shifted by a row, sorted differently or come from another file, and compare "
    "the items of a few ids by eye."
)
_AGREEMENT = (
    "All of this is provisional. Without labels or judged queries (--relevant), limpet measures agreement with "
    "re-embedding, not correctness: how many of the first ten items are also among the first ten after re-embedding. "
    "Items of the index serve as queries."
)


@dataclass(frozen=True)
class Words:
    """Sentences about one comparison; each method is one recommendation."""

    comparison: Comparison

    def no_relation(self, suspects: SuspectPairs) -> Iterator[str]:
        """Say that nothing can be learned from the pairs."""
        yield (
            f"Check the pairs: {_share(suspects)} bear no relation that a map could learn, so no adapter is "
            "recommended. Either the ids pair the wrong items, or the two models have too little in common."
        )
        yield _LOOK
        yield from self._as_they_are(self.comparison.best_head)

    def suspect(self, suspects: SuspectPairs) -> Iterator[str]:
        """Say that many pairs may be wrong."""
        yield (
            f"Check the pairs: {_share(suspects)} are suspect, and what is fitted on wrong pairs finds less than it "
            "could."
        )
        yield _LOOK
        yield from self._as_they_are(self.comparison.best)

    def train(self, head: Measured) -> Iterator[str]:
        """Describe the gain of a head."""
        then = _THEN[head.direction]
        yield f"Train '{head.name}' on the labelled items and pass the new model's queries through it{then}"
        yield f"'{head.name}' {self._reaches(head)}"
        yield from self._losses(head)
        adapter, lead = self.comparison.best_adapter, self.comparison.head_lead
        if adapter and lead:
            yield f"That is {self._points(lead)} than the best adapter, '{adapter.name}'."
        yield from self._rest(head)
        if adapter and adapter.unseen and head.unseen and head.unseen.cross < adapter.unseen.cross:
            yield (
                f"There '{adapter.name}' finds more than '{head.name}': {adapter.unseen.cross:.3f} against "
                f"{head.unseen.cross:.3f}. If most of your items are of new classes, weigh these two numbers."
            )
        yield from self._caveat()

    def adapt(self, adapter: Measured) -> Iterator[str]:
        """Describe the gain of an adapter."""
        yield f"Fit '{adapter.name}' on the pairs and {_PASS[adapter.direction or 'new_to_old']}"
        yield f"'{adapter.name}' {self._reaches(adapter)}"
        yield from self._losses(adapter)
        yield from self._rest(adapter)
        head, lead = self.comparison.best_head, self.comparison.head_lead
        if head and lead:
            why = "but is clearly worse " + places(head.worse) if head.worse else "not enough to train it"
            yield f"The best head, '{head.name}', has {self._points(lead)} than that: {why}."
        yield from self._caveat()

    def re_embed(self) -> Iterator[str]:
        """Say that only re-embedding helps."""
        yield (
            "Re-embed the gallery with the new model: nothing that was tried was shown to find more in the old gallery "
            "than the old model does."
        )
        yield self._gain()
        if best := self.comparison.best:
            yield f"The best that was tried, '{best.name}', {self._reaches(best)}"
        yield from self._nothing_tried()
        if self.comparison.metric == AGREEMENT:
            yield (
                "Agreement cannot tell whether the new model is better at all: label some items or judge some queries "
                "(--relevant), and measure again before you re-embed."
            )
        yield from self._caveat()

    def keep(self) -> Iterator[str]:
        """Say that nothing was gained."""
        yield "Keep the old model: on these items the new one was not shown to find more, not even after re-embedding."
        yield self._gain()
        yield from self._nothing_tried()
        yield from self._caveat()

    def _as_they_are(self, best: Measured | None) -> Iterator[str]:
        if best:
            yield f"On the pairs as they are, '{best.name}' {self._reaches(best)}"
        yield from self._caveat()

    def _nothing_tried(self) -> Iterator[str]:
        if self.comparison.best is None:
            yield (
                "Every candidate failed, so this says nothing about what an adapter or a head could do: read the "
                "reasons, and try others."
            )

    def _reaches(self, one: Measured) -> str:
        return (
            f"reaches {self._quality(one.cross.mean)} {self._measured_on()}, "
            f"{self._points(one.brings, self._choice(one))} than the old model on its own gallery."
        )

    def _measured_on(self) -> str:
        judged, items, splits = self.comparison.judged, self.comparison.held_out, self.comparison.splits
        by_items = f"on {items:,} held-out items" + (f" in each of {splits} splits" if splits > 1 else "")
        return by_items if judged is None else f"with {judged:,} judged queries on {items:,} items"

    def _choice(self, one: Measured) -> str:
        rivals = [rival for rival in self.comparison.candidates if isinstance(rival, Measured)]
        count = sum(rival.kind == one.kind for rival in rivals)
        return "" if one.as_best is None else f", corrected for the choice among {count} {one.kind}s"

    def _gain(self) -> str:
        gain = self._points(self.comparison.self_new_minus_self_old)
        if self.comparison.metric == AGREEMENT:
            return f"Re-embedding, which agrees with itself in all, has {gain} than the old model."
        return f"Re-embedding reaches {self._quality(self.comparison.self_new.mean)}, {gain} than the old model."

    def _rest(self, one: Measured) -> Iterator[str]:
        share = "" if one.recovered is None else f" {whole_percent(one.recovered)} of its gain arrives without it."
        yield f"{self._missing(one)}.{share}"
        yield f"Fitting took {duration(one.seconds)} on {self.comparison.fitted_on:,} pairs."
        yield self._on_unseen(one)

    def _losses(self, one: Measured) -> Iterator[str]:
        for loss in one.worse:
            yield (
                f"Clearly worse {places([loss])}: {loss.cross:.3f}, the old model {loss.self_old:.3f}, "
                f"{self._points(loss.gain)}. Weigh that before you use it; “--guard” names what counts."
            )

    def _missing(self, one: Measured) -> str:
        rest = one.self_new_minus_cross
        if self.comparison.metric == AGREEMENT:
            return f"Full re-embedding, which agrees with itself in all, has {self._points(rest)}"
        none = rest.interval[0] <= 0 <= rest.interval[1]
        reached = (
            f"Full re-embedding reaches {self._quality(self.comparison.self_new.mean)}"
            if one.own is None
            else f"Full re-embedding with this head reaches {self._quality(one.own.mean)}"
        )
        return f"{reached}, {self._points(rest)}{': no difference was shown' if none else ''}"

    def _on_unseen(self, one: Measured) -> str:
        unseen = one.unseen
        if self.comparison.judged is not None:
            return "No unseen classes were set aside: the judged queries are measured."
        if unseen is None:
            return (
                "The loss on unseen classes was not measured: none was set aside. It requires labels, at least four "
                "classes, and a share of unseen classes above 0 (--unseen-share)."
            )
        change, classes = 100 * (unseen.cross - unseen.self_old), self.comparison.unseen_classes
        return (
            f"On the {unseen.queries:,} queries of {classes:,} unseen {'class' if classes == 1 else 'classes'}, "
            f"'{one.name}' reaches {self._quality(unseen.cross)}, the old model {unseen.self_old:.3f} "
            f"and re-embedding {unseen.self_new:.3f}: there {abs(change):.1f} {self._unit} are "
            f"{'lost' if change < 0 else 'gained'}."
        )

    def _caveat(self) -> Iterator[str]:
        if self.comparison.metric == AGREEMENT:
            yield _AGREEMENT

    @property
    def _unit(self) -> str:
        return "points of agreement" if self.comparison.metric == AGREEMENT else "points"

    def _quality(self, score: float) -> str:
        """Write a score with its metric: "an mAP of 0.512"."""
        metric = self.comparison.metric
        if metric == AGREEMENT:
            return f"an agreement of {score:.3f} with re-embedding"
        name = metric_name(metric)
        return f"{'an' if name.startswith(('mAP', 'nDCG')) else 'a'} {name} of {score:.3f}"

    def _points(self, difference: Effect, corrected: str = "") -> str:
        """Write a difference in points: "4.2 points more (95 % interval +3.0 to +5.4)"."""
        more = "less" if difference.mean < 0 else "more"
        low, high = (f"{100 * end:+.1f}".replace("-", "−") for end in difference.interval)
        level = f"{100 * self.comparison.draws.level:g} % interval {low} to {high}{corrected}"
        return f"{abs(100 * difference.mean):.1f} {self._unit} {more} ({level})"


def places(losses: Sequence[Loss]) -> str:
    """Say where something is worse.

    >>> places([Loss(name="recall@1", self_old=0.5, cross=0.4, gain=Effect(mean=-0.1, interval=(-0.2, -0.05)))])
    'at the first hit (recall@1)'
    """
    return " and ".join(place(loss.name) for loss in losses)


def place(guarded: str) -> str:
    """Say where something is worse, for one guarded metric or for unseen classes.

    >>> place("unseen classes"), place("recall@5")
    ('on unseen classes', 'in recall@5')
    """
    return {"recall@1": "at the first hit (recall@1)", UNSEEN: f"on {UNSEEN}"}.get(guarded, f"in {guarded}")


def _share(suspects: SuspectPairs) -> str:
    share, low, high = map(whole_percent, (suspects.share, suspects.low, suspects.high))
    return f"about {share} of them ({low} to {high})"
