"""Write the address of the repository into every file that names it.

    python tools/repository.py https://git.example.org/limpet/limpet

These are both pyproject.toml, mkdocs.yml and CITATION.cff; an address that is there is replaced.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def addressed(name: str, text: str, url: str) -> str:
    """Return the text of a file with the address in it."""
    if name.endswith("pyproject.toml"):
        places = {"Repository": url, "Issues": f"{url}/issues", "Changelog": f"{url}/blob/main/CHANGELOG.md"}
        urls = "[project.urls]\n" + "".join(f'{name} = "{place}"\n' for name, place in places.items()) + "\n"
        text = re.sub(r"\[project\.urls\]\n(?:\w.*\n)+\n", "", text)
        return text.replace("[project.scripts]\n", f"{urls}[project.scripts]\n", 1)
    key = "repo_url" if name == "mkdocs.yml" else "repository-code"
    text = re.sub(rf"^{key}: .*\n", "", text, flags=re.M)
    first = "site_name" if key == "repo_url" else "type"
    return re.sub(rf"^({first}: .*\n)", rf"\g<1>{key}: {url}\n", text, count=1, flags=re.M)


def main() -> None:
    """Write the address given on the command line."""
    if len(sys.argv) != 2 or not re.fullmatch(r"https?://[^\s/]+/\S*[^\s/]", sys.argv[1]):
        sys.exit(__doc__)
    for name in ("pyproject.toml", "bench/pyproject.toml", "mkdocs.yml", "CITATION.cff"):
        path = ROOT / name
        path.write_text(addressed(name, path.read_text(encoding="utf-8"), sys.argv[1]), encoding="utf-8")


if __name__ == "__main__":
    main()
