"""Data sets of the scoreboard: texts, with what is predicted and the evidence where it is known.

Each function takes the folder of the data and a loaded model, and yields rows: text, and where they
are known evidence (character offsets), target, against and continuation. A text whose answer is
known is kept if the model gives that answer: why a model fails is another question.

The folder of the data has `sst2/dev.tsv`, `ud_agreement/agreement.tsv.gz` and
`amalgum_agreement/agreement.tsv.gz`: tables with tabs and a header.
"""

import itertools
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnflow.errors import AttnflowError
from attnflow.models.loading import LoadedModel
from attnflow.storage import write_json
from attnflow.study.case import Question, make_case
from benchmarks.edges import NAMES, fact_texts, name_texts, read_table

WORDS = (5, 20)  # the shortest and the longest text of agreement
FORMS = {"is": "are", "are": "is", "has": "have", "have": "has"}  # a verb, and its other number
STORY_TOKENS = 70
STORY_BATCH = 32  # stories that are drawn at once
STORY_WORDS = (8, 30)  # the shortest and the longest beginning of a story
HAYSTACK_WORDS = (90, 130)
HELD_OUT_DIGITS = 297  # as in examples/digits_vit.py

Row = dict[str, Any]
Rows = Iterator[Row]


@dataclass(frozen=True)
class Prefix:
    """A sentence up to its verb.

    words, tags: before the verb. subject: the index of its subject. verb: its tag, VBZ or VBP.
    rest: the words from the verb on.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    subject: int
    verb: str
    rest: tuple[str, ...]

    def span(self, words: tuple[str, ...]) -> tuple[int, int]:
        """The characters of the subject in a text of these words."""
        start = sum(len(word) + 1 for word in words[: self.subject])
        return start, start + len(words[self.subject])


def prefixes(data: Path) -> Iterator[Prefix]:
    """Yield prefixes of gold and automatic parses in turn, in a random order.

    Something is between subject and verb: the last word would be found by its position alone.
    """
    tables = []
    for name in ("ud_agreement", "amalgum_agreement"):
        rows = read_table(data / name / "agreement.tsv.gz")
        random.Random(1).shuffle(rows)
        tables.append(rows)
    for row in itertools.chain.from_iterable(zip(*tables, strict=False)):
        end, subject = int(row["verb_index"]), int(row["subj_index"])
        words, tags = row["sentence"].split(), row["xpos"].split()
        if WORDS[0] <= end <= WORDS[1] and subject < end - 1:
            yield Prefix(
                tuple(words[:end]), tuple(tags[:end]), subject, row["verb_pos"], tuple(words[end:])
            )  # fmt: skip


def sst2(data: Path, loaded: LoadedModel) -> Rows:
    """Yield sentences of the development set; the prediction is what the model predicts."""
    del loaded
    rows = read_table(data / "sst2" / "dev.tsv")
    random.Random(1).shuffle(rows)
    for row in rows:
        if len(row["sentence"].split()) >= 5:
            yield {"text": row["sentence"].strip()}


def linzen(data: Path, loaded: LoadedModel) -> Rows:
    """Yield prefixes as Linzen et al. (2016) wrote them; the evidence is the subject.

    Words are in lower case; a word that is not in the vocabulary is replaced by its tag.
    """
    vocabulary = loaded.tokenizer.get_vocab()
    for prefix in prefixes(data):
        words = tuple(
            word.lower() if word.lower() in vocabulary else tag
            for word, tag in zip(prefix.words, prefix.tags, strict=True)
        )
        target = "singular" if prefix.verb == "VBZ" else "plural"
        yield {"text": " ".join(words), "evidence": [prefix.span(words)], "target": target}


def agreement(data: Path, loaded: LoadedModel) -> Rows:
    """Yield prefixes that continue with "is" or "are"; the evidence is the subject."""
    del loaded
    for prefix in prefixes(data):
        target = "is" if prefix.verb == "VBZ" else "are"
        yield {
            "text": " ".join(prefix.words),
            "evidence": [prefix.span(prefix.words)],
            "target": target,
            "against": FORMS[target],
        }


def masked(data: Path, loaded: LoadedModel) -> Rows:
    """Yield sentences whose verb is masked; the evidence is the subject."""
    for prefix in prefixes(data):
        verb = prefix.rest[0].lower()
        if verb in FORMS and len(prefix.words) + len(prefix.rest) <= WORDS[1]:
            words = (*prefix.words, loaded.tokenizer.mask_token, *prefix.rest[1:])
            yield {
                "text": " ".join(words),
                "evidence": [prefix.span(words)],
                "target": verb,
                "against": FORMS[verb],
            }


def names(data: Path, loaded: LoadedModel) -> Rows:
    """Yield prompts with two names, one of them repeated; the evidence is the other."""
    del data, loaded
    for text in name_texts(500):
        yield {
            "text": text.text,
            "evidence": [text.evidence],
            "target": text.target,
            "against": text.against,
        }


def facts(data: Path, loaded: LoadedModel) -> Rows:
    """Yield beginnings of facts, right or wrong; the evidence is the word that decides."""
    del data, loaded
    for text in fact_texts():
        yield {"text": text.text, "evidence": [text.evidence]}


def needles(data: Path, loaded: LoadedModel) -> Rows:
    """Yield documents with two hidden numbers and a question about one; the evidence is its digits.

    The documents are real: sentences that follow one another in AMALGUM.
    """
    del loaded
    rows = read_table(data / "amalgum_agreement" / "agreement.tsv.gz")
    documents: dict[str, list[str]] = {}
    for row in rows:
        known = documents.setdefault(row["doc"], [])
        if row["sentence"] not in known:  # it is repeated for each of its verbs
            known.append(row["sentence"])
    drawn = random.Random(1)
    for document in drawn.sample(sorted(documents), len(documents)):
        sentences = _cut(documents[document])
        if sentences is None:
            continue
        asked, other = drawn.sample(NAMES, 2)
        number, wrong = drawn.sample(range(1000, 10_000), 2)
        hidden = [
            f"The secret number of {name} is {digits}."
            for name, digits in ((asked, number), (other, wrong))
        ]
        drawn.shuffle(hidden)
        for needle in hidden:
            sentences.insert(drawn.randrange(1, len(sentences)), needle)
        text = " ".join([*sentences, f"The secret number of {asked} is"])
        start = text.index(str(number))
        yield {"text": text, "evidence": [(start, start + 4)], "continuation": f" {number}"}


def _cut(sentences: list[str]) -> list[str] | None:
    """Return the first sentences of a document, or None if it is too short."""
    kept: list[str] = []
    for sentence in sentences:
        kept.append(sentence)
        if len(" ".join(kept).split()) >= HAYSTACK_WORDS[0]:
            break
    count = len(" ".join(kept).split())
    return kept if len(kept) >= 3 and HAYSTACK_WORDS[0] <= count <= HAYSTACK_WORDS[1] else None


def stories(data: Path, loaded: LoadedModel) -> Rows:
    """Yield beginnings of the model's own stories, before a name that they had before.

    The evidence is where the name was. Stories are drawn from the model.
    """
    import torch

    del data
    tokenizer = loaded.tokenizer
    start = torch.full((STORY_BATCH, 1), tokenizer.bos_token_id)
    for seed in itertools.count():
        torch.manual_seed(seed)
        with torch.no_grad():
            drawn = loaded.model.generate(
                start, attention_mask=torch.ones_like(start), do_sample=True, temperature=0.8,
                max_new_tokens=STORY_TOKENS, pad_token_id=tokenizer.bos_token_id,
            )  # fmt: skip
        for ids in drawn:
            story = " ".join(tokenizer.decode(ids, skip_special_tokens=True).split())
            for name, before in _find_name(story):
                places = [match.span() for match in re.finditer(rf"\b{name}\b", before)]
                yield {"text": before, "evidence": places, "word": name}


def _find_name(story: str) -> Iterator[tuple[str, str]]:
    """Yield a name that occurs again inside a sentence, and the story before; at most one."""
    for match in re.finditer(r"(?<=[a-z,] )[A-Z][a-z]{2,}\b", story):
        before = story[: match.start()].rstrip()
        enough = STORY_WORDS[0] <= len(before.split()) <= STORY_WORDS[1]
        if enough and re.search(rf"\b{match.group()}\b", before):
            yield match.group(), before
            return


def translation(data: Path, loaded: LoadedModel) -> Rows:
    """Yield short sentences to translate; the prediction is the first token of the translation."""
    del loaded
    for prefix in prefixes(data):
        words = (*prefix.words, *prefix.rest)
        if 6 <= len(words) <= 14 and words[0][:1].isupper():
            yield {"text": " ".join(words)}


SETS: Mapping[str, Callable[[Path, LoadedModel], Rows]] = {
    function.__name__: function
    for function in (
        *(sst2, linzen, agreement, masked, names, facts, needles, stories, translation),
    )
}
COLUMNS = ("target", "against", "continuation", "evidence")


def columns_of(path: Path) -> dict[str, str]:
    """Return the options of a study that name the columns of a data set."""
    with path.open(encoding="utf-8") as lines:
        row = json.loads(next(lines))
    return {f"{name}_column": name for name in COLUMNS if name in row}


def write_set(name: str, loaded: LoadedModel, data: Path, count: int, path: Path) -> None:
    """Write the first rows whose known answer is the model's, as JSON lines.

    A file of the same name that ends in `.tried.json` says how many rows were tried for them.
    """
    kept: list[Row] = []
    tried = 0
    for row in SETS[name](data, loaded):
        if len(kept) == count:
            break
        tried += 1
        if is_right(loaded, row):
            kept.append({key: value for key, value in row.items() if key != "word"})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path.with_suffix(".tried.json"), {"tried": tried, "kept": len(kept)})
    lines = "".join(json.dumps(row) + "\n" for row in kept)
    path.write_text(lines, encoding="utf-8")


def is_right(loaded: LoadedModel, row: Row) -> bool:
    """Whether the model's answer is the one of the row; True if the row has none."""
    if "continuation" in row:
        return _continues(loaded, row["text"], row["continuation"])
    question = Question(target=row.get("target"), against=row.get("against"))
    try:
        case = make_case(loaded, row["text"], question)
    except AttnflowError:  # too long or too short, or an answer that is no token
        return False
    if "word" in row:
        return bool(case.label) and row["word"].startswith(case.label)
    return "target" not in row or case.probability > 0.5


def _continues(loaded: LoadedModel, text: str, continuation: str) -> bool:
    """Whether a decoder itself continues a text like this."""
    try:
        wanted = loaded.tokenizer(continuation, add_special_tokens=False)["input_ids"]
        case = make_case(loaded, text, Question(generate=len(wanted)))
    except AttnflowError:
        return False
    return [step.contrast.target for step in case.steps] == list(wanted)


def write_digits(count: int, folder: Path) -> None:
    """Write held-out digits of scikit-learn as images, as examples/digits_vit.py makes them."""
    from examples.digits_vit import make_pictures

    pictures, classes = make_pictures()
    folder.mkdir(parents=True, exist_ok=True)
    held_out = range(len(pictures) - HELD_OUT_DIGITS, len(pictures))
    for i in list(held_out)[:count]:
        pictures[i].save(folder / f"{i}-{int(classes[i])}.png")
    write_json(folder.with_suffix(".tried.json"), {"tried": count, "kept": count})
