"""Compare the replacements of blank-out: how well they tell the words of a text apart.

    python -m benchmarks.references MODEL DATA [--examples 150] [--facts]

MODEL: a folder, hub name or built-in model: a language model or a classifier.
DATA: a table with tabs and a header, gzipped or not. With the columns `sentence`, `subj_index`,
`verb_index`, `verb_pos` and `verb`, the text is the sentence up to the verb (for masked language
models the sentence with a masked verb), and the target is the form of the verb there; with
`sentence` and `label`, the text is the sentence, and the target is the predicted class.

Prints one row for each replacement and score, averaged over texts: `spread`, the standard deviation
of the scores of words divided by the mean of their absolute values; `rho`, Spearman's correlation
of absolute scores with the norm of the gradient, over tokens; `subject`, the share of texts in
which the subject is among the two words with the highest scores.
"""

import argparse
import csv
import gzip
import random
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attnflow import load_model
from attnflow.errors import InputError, SelectionError
from attnflow.evaluation import spearman
from attnflow.importance import input_gradients
from attnflow.importance.blank_out import score_drops
from attnflow.importance.replacement import find_changes, resolve_replacement, run_changes
from attnflow.importance.target import open_target
from attnflow.models.loading import LoadedModel
from attnflow.models.prediction import Contrast, resolve_word

REPLACEMENTS = ("unknown", "pad", "mask", "remove", "mean", "neighbor", "sample")
IRREGULAR = {"is": "are", "has": "have", "does": "do", "goes": "go", "'s": "are"}
FACTS = (
    ("The Eiffel Tower is located in the city of", "Paris", "Rome"),
    ("The capital of Japan is the city of", "Tokyo", "London"),
    ("The keys to the cabinet", "are", "is"),
    ("The author of the old books", "is", "are"),
)
SAMPLES = 4
TOP = 2


@dataclass(frozen=True)
class Text:
    """A text, its target (None for the predicted class), the other one, and the subject's index."""

    text: str
    target: Any = None
    against: Any = None
    subject: int | None = None


def read_texts(path: Path, loaded: LoadedModel, n: int, seed: int = 0) -> list[Text]:
    """Draw n texts from a table."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    random.Random(seed).shuffle(rows)
    texts = []
    for row in rows:
        text = read_row(row, loaded)
        texts += [] if text is None else [text]
        if len(texts) == n:
            break
    return texts


def read_row(row: dict[str, str], loaded: LoadedModel) -> Text | None:
    """Return the text of a row; None if it is too short or too long, or its verb not one token.

    At least two words are between subject and verb, so that the last words are not the subject.
    """
    words = row["sentence"].split()
    if "verb_index" not in row:
        return Text(row["sentence"]) if 5 <= len(words) <= 20 else None
    subject, verb = int(row["subj_index"]), int(row["verb_index"])
    if not 5 <= verb <= 16 or verb - subject < 3:
        return None
    text = " ".join(words[:verb])
    if loaded.task == "classifier":
        is_plural = row["verb_pos"] == "VBP"
        return Text(text.lower(), int(is_plural), int(not is_plural), subject)
    if loaded.task == "masked_lm":
        text = " ".join([*words[:verb], loaded.tokenizer.mask_token, *words[verb + 1 :]])
    forms = row["verb"].lower(), other_form(row["verb"].lower(), row["verb_pos"])
    try:
        target, against = (resolve_word(loaded, form, len(loaded.tokenizer)) for form in forms)
    except SelectionError:
        return None
    return Text(text, target, against, subject) if target != against else None


def other_form(verb: str, tag: str) -> str:
    """Return the plural of a singular verb (VBZ), or the singular of a plural one (VBP).

    >>> other_form("is", "VBZ"), other_form("carry", "VBP"), other_form("reaches", "VBZ")
    ('are', 'carries', 'reach')
    """
    if tag == "VBZ":
        if verb in IRREGULAR:
            return IRREGULAR[verb]
        if verb.endswith("ies"):
            return f"{verb[:-3]}y"
        ending = 2 if verb.endswith(("shes", "ches", "sses", "xes")) else 1
        return verb[:-ending]
    for singular, plural in IRREGULAR.items():
        if verb == plural:
            return singular
    if verb.endswith("y") and verb[-2:-1] not in "aeiou":
        return f"{verb[:-1]}ies"
    return f"{verb}es" if verb.endswith(("sh", "ch", "ss", "x")) else f"{verb}s"


def measure(loaded: LoadedModel, text: Text) -> dict[tuple[str, str], Any]:
    """Return scores [tokens], nan where there are none, by replacement and score; and the words."""
    options: dict[str, Any] = {"tokenizer": None, "position": None, "truncate": "error"}
    rows: dict[tuple[str, str], Any] = {}
    with (
        open_target(
            text.text, loaded, target=text.target, against=text.against, device=None, **options
        ) as (_, found),
        torch.no_grad(),
    ):
        n = found.encoded.n_inputs
        rows["words", ""] = words_of(found.encoded)
        plain = replace(found, contrast=Contrast(found.contrast.target))
        scored = {"probability": plain, "log_probability": plain, "contrast": found}
        if text.against is None:
            del scored["contrast"]
        for name in REPLACEMENTS:
            try:
                replacement = resolve_replacement(loaded, name)  # type: ignore[arg-type]
                changes = find_changes(loaded, found, replacement, samples=SAMPLES, seed=0)
            except InputError:
                continue
            [logits] = run_changes(loaded, [found], [changes], replacement)
            columns = list(dict.fromkeys(change.column for change in changes))
            for score, one in scored.items():
                kind = "probability" if score == "probability" else "log_probability"
                drops = score_drops(loaded, one, logits, kind)  # type: ignore[arg-type]
                rows[name, score] = np.full(n, np.nan)
                rows[name, score][columns] = drops.reshape(len(columns), -1).mean(-1)
    for variant in ("l2", "sum", "times_input"):
        result = input_gradients(text.text, loaded, target=text.target, variant=variant)
        rows[f"gradient, {variant}", "logit"] = result.to_numpy()[0, 0]
    if text.against is not None:
        result = input_gradients(text.text, loaded, target=text.target, against=text.against)
        rows["gradient, l2", "contrast"] = result.to_numpy()[0, 0]
    return rows


def words_of(encoded: Any) -> Any:
    """Return the number of the word that each token is in; -1 outside the text."""
    numbers = []
    for span in encoded.offsets[: encoded.n_inputs]:
        numbers.append(-1 if span is None else len(encoded.text[: span[1]].split()) - 1)
    return np.asarray(numbers)


def summarize(scores: Any, words: Any, gradient: Any, subject: int | None) -> dict[str, float]:
    """Return the numbers of one text; see the top of this file."""
    inside = (words >= 0) & ~np.isnan(scores)
    sums = np.asarray([scores[inside & (words == w)].sum() for w in range(words.max() + 1)])
    found = {
        "spread": float(sums.std() / max(np.abs(sums).mean(), 1e-12)),
        "rho": float(spearman(np.abs(scores[inside]), gradient[inside], tolerance=0.0)),
    }
    if subject is not None:
        found["subject"] = float(subject in np.argsort(-sums, kind="stable")[:TOP])
    return found


def report(loaded: LoadedModel, texts: list[Text]) -> None:
    """Measure the texts, and print the table."""
    numbers: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    for text in texts:
        rows = measure(loaded, text)
        words, gradient = rows.pop(("words", "")), rows["gradient, l2", "logit"]
        for key, scores in rows.items():
            numbers[key].append(summarize(scores, words, gradient, text.subject))
    print(f"{len(texts)} texts")
    print("| replacement | score | spread | rho | subject |")
    print("| --- | --- | --- | --- | --- |")
    for (name, score), found in numbers.items():
        means = (
            f"{np.nanmean([one[m] for one in found if m in one] or [np.nan]):.2f}"
            for m in ("spread", "rho", "subject")
        )
        print(f"| {name} | {score} | {' | '.join(means)} |")
    if texts[0].subject is not None:
        lengths = [len(text.text.split()) for text in texts]
        print(f"Two words at random: {np.mean([TOP / n for n in lengths]):.2f}")


def report_facts(loaded: LoadedModel) -> None:
    """Print the scores of each token of a few prompts."""
    for text, target, against in FACTS:
        rows = measure(loaded, Text(text, target, against))
        rows.pop(("words", ""))
        tokens = loaded.tokenizer.tokenize(text)
        print(f"\n{text} -> {target}\n{' ' * 30}", *(f"{t.strip('Ġ'):>8}" for t in tokens))
        for (name, score), scores in rows.items():
            print(f"{name:>14} {score:15}", *(f"{value:8.2f}" for value in scores))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("data", type=Path)
    parser.add_argument("--examples", type=int, default=150)
    parser.add_argument("--facts", action="store_true", help="print a few prompts as well")
    options = parser.parse_args()
    loaded = load_model(options.model)
    report(loaded, read_texts(options.data, loaded, options.examples))
    if options.facts:
        report_facts(loaded)


if __name__ == "__main__":
    main()
