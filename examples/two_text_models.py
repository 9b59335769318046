"""Search texts that an old model embedded with the queries of a new one, step by step.

    pip install -c constraints.txt '.[report,text]'
    python examples/two_text_models.py --old sentence-transformers/all-MiniLM-L6-v2 --new BAAI/bge-small-en-v1.5

Any two sentence-transformers models will do, as folders or as names on the hub; static word embeddings, too. The texts
are requests to a shop, made up for this example; give a file of your own with --texts (columns ``id``, ``text`` and, if
you have them, ``label``). Everything runs on a CPU, and texts are embedded once: what was embedded is kept in --out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from limpet.data import TextSet, load_texts
from limpet.embeddings import EmbeddingSet, StringArray
from limpet.examples import SHOP
from limpet.linking.adapt import Choice, adapt, open_link, save_link
from limpet.models.text_encoders import embed_texts, open_text_encoder

REQUESTS = SHOP / "requests.csv"
QUESTIONS = ("my parcel did not come", "when do you open at the weekend", "I forgot how to log in")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", required=True, help="the model that embedded your gallery")
    parser.add_argument("--new", required=True, help="the model that you would like to use")
    parser.add_argument("--texts", type=Path, default=REQUESTS)
    parser.add_argument("--out", type=Path, default=Path("runs/two_text_models"))
    arguments = parser.parse_args()

    # 1. The same texts, embedded by both models. In production the old ones are there already: your gallery.
    texts = load_texts(arguments.texts)
    assert isinstance(texts, TextSet)
    old_model, new_model = open_text_encoder(arguments.old), open_text_encoder(arguments.new)
    cache = arguments.out / "cache"
    old, new = (embed_texts(model, texts, role="document", cache=cache) for model in (old_model, new_model))
    print(f"{len(texts)} texts: {old.dim} dimensions before, {new.dim} from now on")

    # 2. Fit every adapter and, with labels, a head, on most texts, and measure on the others what they find.
    found = adapt(old, new)
    for one in found.recommendation.sentences:
        print(one)

    # 3. Fit what was recommended on all texts, and save it.
    chosen = found.recommendation.candidate
    if chosen is None:
        print("Nothing to save: the sentences above say what to do instead.")
        return
    place = save_link(chosen, old, new, Choice(), arguments.out)
    print(f"saved in {place}")

    # 4. Use it. A link maps the new model's queries, or the gallery, so that both meet in one space.
    link = open_link(place)
    gallery = link.gallery(old)
    questions = TextSet(StringArray.of(QUESTIONS), None, (), StringArray.of(QUESTIONS))
    queries = link.query(embed_texts(new_model, questions, role="query"))
    for question, best in zip(QUESTIONS, nearest(queries, gallery), strict=True):
        print(f"\n{question}")
        for row in best:
            print(f"    {texts.texts[int(row)]}")


def nearest(queries: EmbeddingSet, gallery: EmbeddingSet, count: int = 3) -> np.ndarray:
    """Return the rows of the nearest items of every query; a vector database does the same for millions."""
    return np.argsort(-(queries.vectors @ gallery.vectors.T), axis=1)[:, :count]


if __name__ == "__main__":
    main()
