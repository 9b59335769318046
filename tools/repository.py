"""Write the URL of the repository into all files that contain it.

    python tools/repository.py https://git.example.org/limpet/limpet

The files are pyproject.toml, bench/pyproject.toml, mkdocs.yml and CITATION.cff. An existing URL is replaced.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def addressed(name: str, text: str, url: str) -> str:
    """Return the text of a file with the URL.

    Args:
        name: Path of the file, relative to the repository.
        text: Text of the file.
        url: URL of the repository.
    """
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
    """Write the URL given on the command line."""
    if len(sys.argv) != 2 or not re.fullmatch(r"https?://[^\s/]+/\S*[^\s/]", sys.argv[1]):
        sys.exit(__doc__)
    for name in ("pyproject.toml", "bench/pyproject.toml", "mkdocs.yml", "CITATION.cff"):
        path = ROOT / name
        path.write_text(addressed(name, path.read_text(encoding="utf-8"), sys.argv[1]), encoding="utf-8")


if __name__ == "__main__":
    main()
