"""``limpet examples``."""

from __future__ import annotations

from pathlib import Path

from limpet.cli.console import console, print_json


def copy(folder: Path) -> int:
    """Write the sample data of the tutorials to a folder.

    The folder then holds requests and products of an imaginary shop, two small text models with their vectors, 200
    rendered photos, and scripts that start PostgreSQL and an embeddings server. README.md explains each file. No
    network is used. A second call adds what is missing.

    Args:
        folder: A new or an empty folder.

    Examples:
        limpet examples copy shop
    """
    from limpet.examples import copy_examples

    written = copy_examples(folder)
    console.print(f"Wrote {len(written)} files to {folder}. README.md explains them. Next: cd {folder}")
    print_json({"folder": str(folder), "written": [str(path) for path in written]})
    return 0
