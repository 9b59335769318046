"""The commands of a program: which function each is, and what the help says about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo:demo", "Train an old and several new models on rendered characters and compare them."),
    "examples copy": ("examples:copy", "Write the sample data of the tutorials to a folder."),
    "doctor": ("doctor:doctor", "Look for what is wrong with any index: yours or a gallery."),
    "data": ("data:data", "List the known data sets, or explain one."),
    "data list": ("data:list_all", "List the known data sets."),
    "data describe": ("data:describe", "Count the images or texts and the classes of a data set."),
    "data check": ("data:check", "Read all of a data set and look for leaks."),
    "methods": ("methods:methods", "List the compatibility methods, or explain one."),
    "methods check": ("methods:check", "Check that a method keeps the contract of methods."),
    "train": ("train:train", "Train a model, or a comparison of old, independent and compatible models."),
    "embed images": ("embed:images", "Embed images with releases."),
    "embed texts": ("embed:texts", "Embed texts with text models, heads or an adapter."),
    "embed stored": ("embed:stored", "Map stored embeddings to another space."),
    "adapt": ("adapt:adapt", "Link two frozen models by an adapter or a compatible head."),
    "fine-tune": ("fine_tune:fine_tune", "Fine-tune a text model so that its queries search an old index."),
    "export": ("export:export", "Write an adapter, a head or an image model for serving without limpet."),
    "evaluate": ("evaluate:evaluate", "Measure whether new queries can search an old index."),
    "evaluate chain": ("evaluate_chain:chain", "Measure every pair of a chain of models."),
    "evaluate combine": ("evaluate_combine:combine", "Combine evaluations on several test sets."),
    "evaluate protocols": ("evaluate:protocols", "List the evaluation protocols."),
    "gallery create": ("gallery.create:create", "Create a gallery for the vectors of a model, and fill it."),
    "gallery import": ("gallery.imports:import_rows", "Add items from files, tables or collections, or embed them."),
    "gallery add": ("gallery.rows:add", "Add new items."),
    "gallery upsert": ("gallery.rows:upsert", "Add items, or replace them with all their vectors."),
    "gallery delete": ("gallery.rows:delete", "Remove items with all their vectors."),
    "gallery search": ("gallery.search:search", "Find the nearest items."),
    "gallery status": ("gallery.status:status", "Show what the gallery contains and how much space it takes."),
    "gallery index": ("gallery.index:index", "Build an approximate index over the vectors of a generation."),
    "gallery export": ("gallery.export:export", "Write the vectors and metadata of a generation to a file."),
    "gallery backup": ("gallery.backup:backup", "Copy everything to a new folder while the gallery is written to."),
    "gallery restore": ("gallery.backup:restore", "Create a gallery from a backup."),
    "gallery link": ("gallery.upkeep:link", "Let queries of one model search vectors of another."),
    "gallery calibrate": ("gallery.upkeep:calibrate", "Merge old and new vectors by scores on one scale."),
    "gallery gc": ("gallery.upkeep:gc", "Delete data that is no longer needed."),
    "upgrade plan": ("upgrade.plan:plan", "Estimate the items, hours, cost and storage of an upgrade."),
    "upgrade rehearse": ("upgrade.rehearse:rehearse", "Rehearse an upgrade on a copy of a sample and measure it."),
    "upgrade start": ("upgrade.steps:start", "Reserve space for a new model; queries are not affected."),
    "upgrade backfill": ("upgrade.steps:backfill", "Re-embed items in batches; run it again to resume."),
    "upgrade index": ("upgrade.steps:index", "Build the approximate index on the new vectors."),
    "upgrade swap": ("upgrade.steps:swap", "Activate the new model."),
    "upgrade rollback": ("upgrade.steps:rollback", "Reactivate the old model."),
    "upgrade finish": ("upgrade.steps:finish", "Check every item, then delete the old vectors."),
    "upgrade cancel": ("upgrade.steps:cancel", "Delete the new vectors."),
    "upgrade verify": ("upgrade.steps:verify", "Read vectors again and report what is wrong."),
    "upgrade status": ("upgrade.steps:status", "Show the phase of the upgrade and the next command."),
    "upgrade writes": ("upgrade.steps:writes", "Declare which model your application writes with."),
    "upgrade log": ("upgrade.steps:log", "List the steps of the upgrade."),
    "serve": ("serve:serve", "Serve a gallery over HTTP, and the steps of its upgrade as jobs."),
    "fragments plan": ("fragments:plan", "Write the items that lack a vector to a folder, as shards."),
    "fragments make": ("fragments:make", "Embed the items of shards."),
    "fragments accept": ("fragments:accept", "Write the vectors that workers made into the gallery."),
    "completion": ("completion:completion", "Print the completion script of bash, zsh or fish."),
}
"""By what people type: module and function, and what the help of the group says about it."""

GROUPS: dict[str, str] = {
    "examples": "Get sample data to try limpet with.",
    "embed": "Embed images or texts, or map stored embeddings to another space.",
    "gallery": "Create, fill and search a live gallery.",
    "fragments": "Backfill a gallery by workers on any number of machines.",
    "upgrade": "Migrate a gallery, or your own table or collection, to a new model with zero downtime.",
}
"""Words that are no command without another one, and what their help says."""


@dataclass(frozen=True)
class Program:
    """A program and its commands.

    Args:
        name: What people type.
        help: What it is, in a sentence.
        package: The package of the modules with its commands.
        commands: Module and function of every command, and what the help says about it; see `COMMANDS`.
        groups: See `GROUPS`.
        table: The table of limpet.toml that holds the tables of its commands; "" for the top.
    """

    name: str
    help: str
    package: str
    commands: Mapping[str, tuple[str, str]]
    groups: Mapping[str, str] = field(default_factory=dict)
    table: str = ""

    @property
    def summaries(self) -> dict[str, str]:
        """What the help of the program says about the first word of every command."""
        words = dict.fromkeys(name.partition(" ")[0] for name in self.commands)
        return {word: self.groups.get(word) or self.commands[word][1] for word in words}


LIMPET = Program(
    "limpet", "Upgrade the embedding model of a live vector index with zero downtime.", "limpet.cli", COMMANDS, GROUPS
)


def path_of(words: Sequence[str], program: Program = LIMPET) -> str | None:
    """Return the command or group that words name, such as "evaluate chain"; None where this app has none of it."""
    begins = 0
    while begins < len(words) and words[begins].startswith("-"):  # options of every command may come first
        begins += 2 if words[begins] == "--config" else 1
    for length in (2, 1):
        if (path := " ".join(words[begins : begins + length])) in program.commands or path in program.groups:
            return path
    return None
