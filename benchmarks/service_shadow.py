"""Whether the shadow of a service says of real data what an evaluation of the same queries says.

    python benchmarks/service_shadow.py --data ../shared/data       # LIMPET_DATA when left out

Sentences of CLINC150 and BANKING77 are items of a gallery by wordllama (256 numbers); MiniLM-L6 (384) is prepared.
`limpet serve --shadow 1` answers queries, held-out sentences, and a click is reported on the first hit of the same
intent. Then the evidence that it states over HTTP is compared with the same measured from embeddings of the same
sentences, without service and gallery; and the queries and clicks that it hands out are given to `limpet upgrade
rehearse` and `limpet evaluate`. Writes service_shadow.md.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from frozen_models_tasks import NEW, OLD
from limpet.adapters import build_adapter
from limpet.adapters.storage import save_adapter
from limpet.data.text_set import TextSet
from limpet.data.texts import load_texts
from limpet.embeddings import EmbeddingSet
from limpet.evaluation.agreement import compared
from limpet.training.text_models import open_text_model
from machine import describe
from service_load import RESULTS, Served, served, table

DEPTH, WAITING = 10, 32  # hits; queries of which the shadow is awaited
SEED = 0


def limpet(*words: str | Path, codes: tuple[int, ...] = (0,)) -> dict[str, Any]:
    """Run a command, and return the JSON that it prints."""
    done = subprocess.run([sys.executable, "-m", "limpet", *map(str, words), "--json"], capture_output=True, text=True)
    assert done.returncode in codes, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return {"code": done.returncode, **(json.loads(done.stdout) if done.stdout.strip() else {})}


def asked(service: Served, queries: TextSet, kinds: dict[str, str]) -> dict[str, Any]:
    """Search every query, click the first hit of its intent, and return the evidence once the shadow has seen all."""
    json_of = {"Content_Type": "application/json"}
    for number, text in enumerate(queries.texts):
        body = json.dumps({"texts": [text], "k": DEPTH}).encode()
        status, told = service.ask("POST", "/v1/search", body, X_Request_ID=f"q{number}", **json_of)
        assert status == 200, told
        kind = queries.class_names[int(queries.labels[number])]
        clicked = next((hit["id"] for hit in told["hits"][0] if kinds[hit["id"]] == kind), None)
        if clicked is not None:
            click = json.dumps({"request": f"q{number}", "id": clicked}).encode()
            with urllib.request.urlopen(urllib.request.Request(
                f"http://127.0.0.1:{service.port}/v1/clicks", click, {"Content-Type": "application/json"}
            )) as answer:  # fmt: skip
                assert answer.status == 204
        while (number + 1) % WAITING == 0 or number + 1 == len(queries.texts):
            _, found = service.ask("GET", "/v1/upgrade/evidence")
            if found["shadow"]["queries"] == number + 1:
                break
            time.sleep(0.05)
    return found


def nearest(items: EmbeddingSet, queries: EmbeddingSet) -> np.ndarray:
    """Return the rows of the first hits of every query."""
    forms = (queries.space.index_form(np.asarray(one.vectors), side) for one, side in
             ((queries, "query"), (items, "gallery")))  # fmt: skip
    first, second = forms
    return np.argsort(-(first @ second.T), axis=1, kind="stable")[:, :DEPTH]


def measured(data: str, root: Path, folder: Path, items: int, queries: int) -> list[tuple[str, str]]:
    """Return what the shadow says of a data set, and what an evaluation does."""
    parts, rng = load_texts(data, root, seed=SEED).parts(), np.random.default_rng(SEED)
    stored, texts = (parts[name][np.sort(rng.permutation(len(parts[name].texts))[:count])] for name, count in
                     (("gallery", items), ("query", queries)))  # fmt: skip
    file = folder / "items.csv"
    with file.open("w", newline="") as lines:
        csv.writer(lines).writerows([("id", "text"), *zip(stored.ids, stored.texts, strict=True)])
    kinds = dict(zip(stored.ids, (stored.class_names[int(one)] for one in stored.labels), strict=True))
    url = f"lance:{folder}/live"
    limpet("gallery", "create", url, "--texts", file, "--model", OLD)
    words = ["--model", OLD, "--model", NEW, "--texts", str(file), "--shadow", "1"]
    with served(url, *words) as service:
        service.take("start", model=NEW)
        service.take("backfill")
        live = asked(service, texts, kinds)["shadow"]
        for name in ("old.npz", "new.npz", "clicks.csv"):
            path = f"http://127.0.0.1:{service.port}/v1/upgrade/evidence/{name}"
            urllib.request.urlretrieve(path, folder / name)
    models = {side: open_text_model(model) for side, model in (("old", OLD), ("new", NEW))}
    held = {side: (one.embed(stored, role="document"), one.embed(texts, role="query")) for side, one in models.items()}
    offline = compared(*(nearest(*held[side]) for side in ("old", "new")))
    handed = {side: np.load(folder / f"{side}.npz")["vectors"] - np.asarray(held[side][1].vectors) for side in held}
    rows = [("queries, items", f"{len(texts.texts):,}, {len(stored.texts):,}")]
    for name, values in offline.items():
        one = live["alike"][name]
        stated = f"{one['mean']:.6f} [{one['interval'][0]:.3f}, {one['interval'][1]:.3f}]"
        rows.append((f"{name}: stated over HTTP", stated))
        rows.append((f"{name}: measured offline", f"{np.nanmean(values):.6f}"))
    largest = ", ".join(f"{np.abs(difference).max():.1e}" for difference in handed.values())
    rows.append(("largest difference of the query vectors handed out, old, new", largest))
    rows.append(("clicks; mean reciprocal rank old, new", f"{live['clicked']}; " + ", ".join(
        f"{live['reciprocal_rank'][side]['mean']:.3f}" for side in ("old", "new"))))  # fmt: skip
    rehearsed = limpet(
        "upgrade", "rehearse", url, "--model", NEW, "--texts", file, "--queries", folder / "old.npz",
        folder / "new.npz", "--out", folder / "rehearsal", codes=(0, 1, 3),
    )  # fmt: skip
    rows.append(("`limpet upgrade rehearse --queries old.npz new.npz`: verdict", str(rehearsed["verdict"])))
    named = {side: EmbeddingSet(held[side][0].vectors, stored.ids, model=side) for side in held}
    for side, one in named.items():
        np.savez(folder / f"items_{side}.npz", vectors=one.vectors, ids=np.array(list(one.ids)))
    save_adapter(build_adapter("ridge", {"direction": "new_to_old"}).fit(named["old"], named["new"]), folder / "link")
    evaluated = limpet(
        "evaluate", "--old", folder / "old.npz", folder / "items_old.npz", "--new", folder / "new.npz",
        folder / "items_new.npz", "--old-name", "old", "--new-name", "new", "--link", folder / "link",
        "--relevant", folder / "clicks.csv", "--out", folder / "evaluation", codes=(0, 1, 3),
    )  # fmt: skip
    hits = evaluated["first_hits"]
    told = f"{hits['before']:.3f}, {hits['after']:.3f}, {hits['net']:+.3f} " + "[{:.3f}, {:.3f}]".format(
        *hits["interval"]
    )
    rows.append((f"`limpet evaluate --relevant clicks.csv --link`: {hits['metric']} before, after, difference", told))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("LIMPET_DATA"))
    parser.add_argument("--items", type=int, default=600)
    parser.add_argument("--queries", type=int, default=120)
    parser.add_argument("--out", type=Path, default=RESULTS / "service_shadow.md")
    arguments = parser.parse_args()
    lines = ["# Does the shadow say what an evaluation says?", "", describe(), ""]
    for data in ("clinc150", "banking77"):
        with tempfile.TemporaryDirectory() as folder:
            rows = measured(data, arguments.data, Path(folder), arguments.items, arguments.queries)
        lines += [f"## {data}", "", *table("measure | value", rows)]
        print("\n".join(lines), flush=True)
    arguments.out.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
