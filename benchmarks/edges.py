"""Compare edge weightings on a language model or a classifier, and write docs/edges.md.

    python -m benchmarks.edges MODEL --agreement FILE --cache FOLDER [--examples 300]
    python -m benchmarks.edges minilm-sst2 --sentences FILE --cache FOLDER [--examples 200]
    python -m benchmarks.edges opus-mt-en-fr --sentences FILE --cache FOLDER --examples 60
    python -m benchmarks.edges --report

MODEL: a folder, hub name or built-in model. --agreement: a table with the columns `sentence`,
`subj_index` and `verb_index`; the text is the sentence before the verb, and its evidence is the
subject. With it, 100 prompts with two names and 50 facts are measured, too. --sentences: a table
with the column `sentence`. Tables have tabs and a header, and may be gzipped.

Scores of each text are stored in the cache, so that an interrupted run goes on. Results are written
to benchmarks/results/edges-NAME.json; --report writes docs/edges.md from them.
"""

import argparse
import csv
import gzip
import itertools
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from attnflow import explain, load_model
from attnflow.evaluation import spearman
from attnflow.evaluation.significance import bootstrap_intervals
from attnflow.importance import alti_logit, blank_out, input_gradients
from attnflow.models.loading import LoadedModel
from attnflow.storage import write_json
from benchmarks.edges_report import RESULTS, write_report
from benchmarks.scoreboard import write_results

EDGES: dict[str, dict[str, Any]] = {
    "attention": {"edges": "attention"},
    "attention, measured residual": {"edges": "attention", "residual_weight": "measured"},
    "effective": {"edges": "effective"},
    "value": {"edges": "value"},
    "norm": {"edges": "norm"},
    "globenc": {"edges": "globenc"},
    "contribution": {"edges": "contribution"},
    "alti": {"edges": "alti"},
    "gradient": {"edges": "gradient"},
    "gradient_rescaled": {"edges": "gradient_rescaled"},
}
METHODS = ("raw", "rollout", "flow", "joint_flow")
NAMES = (
    *("Mary", "John", "Anna", "Paul", "Emma", "Mark", "Sarah", "David"),
    *("Laura", "Peter", "Alice", "Kevin", "Julia", "Simon", "Maria"),
)
PLACES = ("store", "school", "park", "office", "station")
THINGS = ("drink", "book", "letter", "ring", "ticket")
PROMPTS = (
    "When {first} and {second} went to the {place}, {giver} gave a {thing} to",
    "After {first} and {second} came to the {place}, {giver} handed a {thing} to",
)
FACTS: tuple[tuple[str, str], ...] = (
    ("The Eiffel Tower is located in the city of", "Eiffel"),
    ("The Colosseum is located in the city of", "Colosseum"),
    ("The Brandenburg Gate is located in the city of", "Brandenburg"),
    ("The Statue of Liberty is located in the city of", "Liberty"),
    ("The Kremlin is located in the city of", "Kremlin"),
    ("The capital of France is the city of", "France"),
    ("The capital of Japan is the city of", "Japan"),
    ("The capital of Germany is the city of", "Germany"),
    ("The capital of Italy is the city of", "Italy"),
    ("The capital of Spain is the city of", "Spain"),
    ("The capital of Russia is the city of", "Russia"),
    ("The capital of Egypt is the city of", "Egypt"),
    ("The capital of China is the city of", "China"),
    ("The capital of England is the city of", "England"),
    ("The capital of Greece is the city of", "Greece"),
    ("The currency of Japan is called the", "Japan"),
    ("The currency of India is called the", "India"),
    ("The currency of England is called the", "England"),
    ("The people of Brazil speak the language called", "Brazil"),
    ("The people of Austria speak the language called", "Austria"),
    ("The people of Mexico speak the language called", "Mexico"),
    ("The opposite of the word hot is the word", "hot"),
    ("The opposite of the word big is the word", "big"),
    ("The opposite of the word black is the word", "black"),
    ("The opposite of the word early is the word", "early"),
    ("The plural of the word mouse is the word", "mouse"),
    ("The plural of the word child is the word", "child"),
    ("The chemical symbol of the element oxygen is the letter", "oxygen"),
    ("The chemical symbol of the element carbon is the letter", "carbon"),
    ("The largest planet of the solar system is called", "planet"),
    ("The planet closest to the sun is called", "closest"),
    ("The author of the play Hamlet is William", "Hamlet"),
    ("The author of the novel Oliver Twist is Charles", "Oliver"),
    ("The theory of relativity was developed by Albert", "relativity"),
    ("The theory of evolution was developed by Charles", "evolution"),
    ("The laws of gravity were discovered by Isaac", "gravity"),
    ("The telephone was invented by Alexander Graham", "telephone"),
    ("The young of a dog is called a", "dog"),
    ("The young of a cat is called a", "cat"),
    ("The young of a cow is called a", "cow"),
    ("The number that comes after nine is", "nine"),
    ("The number that comes after four is", "four"),
    ("The month that comes after July is", "July"),
    ("The month that comes before May is", "May"),
    ("The day that comes after Monday is", "Monday"),
    ("The day that comes after Friday is", "Friday"),
    ("The color of fresh snow is", "snow"),
    ("The color of ripe bananas is", "bananas"),
    ("The company that makes the iPhone is called", "iPhone"),
    ("The company that makes the operating system Windows is called", "Windows"),
)


@dataclass(frozen=True)
class Text:
    """A text, the characters of its evidence, the target, and the one to compare it with."""

    text: str
    evidence: tuple[int, int] | None = None
    target: str | None = None
    against: str | None = None


def read_table(path: Path) -> list[dict[str, str]]:
    """Read a table with tabs and a header."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    return list(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))


def agreement_texts(path: Path, count: int) -> list[Text]:
    """Return sentences up to the verb, at least five words long, with their subject."""
    rows = read_table(path)
    random.Random(1).shuffle(rows)
    texts = []
    for row in rows:
        words = row["sentence"].split()[: int(row["verb_index"])]
        subject = int(row["subj_index"])
        if len(words) >= 5:
            start = len(" ".join(words[:subject])) + (subject > 0)
            texts.append(Text(" ".join(words), (start, start + len(words[subject]))))
    return texts[:count]


def name_texts(count: int = 100) -> list[Text]:
    """Return prompts with two names, one of them repeated; the evidence is the other."""
    pairs = list(itertools.permutations(NAMES, 2))
    choices = random.Random(1).sample(
        list(itertools.product(pairs, PLACES, THINGS, PROMPTS, (True, False))), count
    )
    texts = []
    for (other, giver), place, thing, prompt, other_first in choices:
        first, second = (other, giver) if other_first else (giver, other)
        text = prompt.format(first=first, second=second, giver=giver, place=place, thing=thing)
        start = text.index(f" {other} ") + 1
        texts.append(Text(text, (start, start + len(other)), other, giver))
    return texts


def fact_texts() -> list[Text]:
    """Return the facts, with the word that decides the answer."""
    places = [(text, text.index(f" {word}") + 1, word) for text, word in FACTS]
    return [Text(text, (start, start + len(word))) for text, start, word in places]


def score_text(loaded: LoadedModel, text: Text) -> dict[str, Any]:
    """Return tokens, offsets, and the scores of all tokens by every method.

    Effective attention equals attention for texts with no more tokens than a head has dimensions,
    and takes a decoder as long as all other edges together.
    """
    found: dict[str, Any] = {"scores": {}}
    for name, options in EDGES.items():
        if name == "effective" and loaded.is_causal:  # slow, and the same as attention
            continue
        explanation = explain(text.text, loaded, target=text.target, keep_heads=False, **options)
        found["tokens"] = list(explanation.tokens)
        found["offsets"] = explanation.offsets
        for method in METHODS:
            result = explanation.attribute(method, layers=-1, threads=1)
            found["scores"][f"{name} / {method}"] = result.to_numpy()[0, 0].tolist()
    references: dict[str, Callable[[], Any]] = {
        "ALTI-Logit": lambda: alti_logit(text.text, loaded, target=text.target),
        "gradient norm": lambda: input_gradients(text.text, loaded, target=text.target),
        "blank-out": lambda: blank_out(text.text, loaded, target=text.target),
    }
    if text.against is not None:
        references["ALTI-Logit, contrastive"] = lambda: alti_logit(
            text.text, loaded, target=text.target, against=text.against
        )
    for name, compute in references.items():
        found["scores"][name] = compute().to_numpy()[0, 0].tolist()
    count = len(found["scores"]["gradient norm"])  # the tokens of the encoder, if there are two
    found["scores"] = {name: scores[:count] for name, scores in found["scores"].items()}
    found["scores"]["earlier is higher"] = [-float(i) for i in range(count)]
    return found


def scored(
    loaded: LoadedModel, name: str, texts: Sequence[Text], cache: Path
) -> Iterator[tuple[Text, dict[str, Any]]]:
    """Yield each text with its scores, from the cache where they are stored."""
    for i, text in enumerate(texts):
        key = sha256(f"{name}\n{text}".encode()).hexdigest()[:24]
        path = cache / f"{key}.json"
        if not path.exists():
            write_json(path, score_text(loaded, text))
        if (i + 1) % 10 == 0:
            print(f"{i + 1} of {len(texts)} texts", flush=True)
        yield text, json.loads(path.read_text(encoding="utf-8"))


def measure(text: Text, found: Mapping[str, Any], *, skips_first: bool) -> dict[str, Any]:
    """Return the measures of every method for one text.

    skips_first: whether the first token, a sink in many decoders, takes no part in the evidence.
    """
    scores = {name: np.asarray(values) for name, values in found["scores"].items()}
    gradient, blank = scores["gradient norm"], np.abs(scores["blank-out"])
    evidence = []
    if text.evidence is not None:
        start, stop = text.evidence
        evidence = [
            i
            for i, (first, last) in enumerate(found["offsets"])
            if max(first, start) < min(last, stop) and not (skips_first and i == 0)
        ]
    rows = {}
    for name, values in scores.items():
        size = np.abs(values) if values.min() < 0 and name != "earlier is higher" else values
        tolerance = 1e-9 if name.endswith("flow") else 0.0  # deep rollout has very small scores
        row: dict[str, float] = {
            "gradient": float(spearman(size, gradient, tolerance=tolerance)),
            "blank_out": float(spearman(size, blank, tolerance=tolerance)),
        }
        if evidence:
            tokens = np.arange(len(values))[1 if skips_first else 0 :]
            best = max(values[i] for i in evidence)
            others = np.asarray([values[i] for i in tokens if i not in evidence])
            ties = (np.abs(others - best) <= tolerance).sum()
            rank = 1 + (others > best + tolerance).sum() + ties / 2
            row |= {"rank": 1 / rank, "first": float(rank == 1), "two": float(rank <= 2)}
        rows[name] = row
    return rows


def summarize(rows: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return mean and 95 % interval of each measure over texts, by method."""
    summary: dict[str, Any] = {}
    for name in rows[0]:
        summary[name] = {}
        for measured in {key: None for row in rows for key in row.get(name, {})}:
            values = np.asarray([row[name].get(measured, np.nan) for row in rows if name in row])
            values = values[np.isfinite(values)]
            if not len(values):
                continue
            interval = bootstrap_intervals(values, resamples=2000)
            summary[name][measured] = {
                "mean": round(float(values.mean()), 4),
                "low": round(float(interval.low), 4),
                "high": round(float(interval.high), 4),
                "n": len(values),
            }
    return summary


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("--agreement", type=Path)
    parser.add_argument("--sentences", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--examples", type=int, default=300)
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    if options.report:
        write_report()
        return
    options.cache.mkdir(parents=True, exist_ok=True)
    loaded = load_model(options.model)
    name = Path(options.model).name
    sets: dict[str, list[Text]] = {}
    if options.agreement:
        sets["facts"] = fact_texts()
        sets["names"] = name_texts()
        sets["agreement"] = agreement_texts(options.agreement, options.examples)
    if options.sentences:
        rows = read_table(options.sentences)
        random.Random(1).shuffle(rows)
        sets["sentences"] = [Text(row["sentence"].strip()) for row in rows[: options.examples]]
    numbers: dict[str, Any] = {"model": name, "sets": {}}
    for key, texts in sets.items():
        measured = [
            measure(text, found, skips_first=loaded.is_causal)
            for text, found in scored(loaded, name, texts, options.cache)
        ]
        numbers["sets"][key] = {"n": len(measured), "methods": summarize(measured)}
        write_results(RESULTS / f"edges-{name}.json", numbers)


if __name__ == "__main__":
    main()
