"""What takes the place of a token in blank-out: another token, the mean embedding, or nothing.

`resolve_replacement` chooses and checks a replacement, `find_changes` lists the changed texts, and
`run_changes` runs the model on them.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from attnflow.errors import InputError, check_choice
from attnflow.importance.target import Target, input_embeddings, replace_embeddings, run
from attnflow.models.inputs import EncodedText, collate
from attnflow.models.loading import LoadedModel
from attnflow.optional import import_optional

Replacement: TypeAlias = Literal["unknown", "mask", "pad", "remove", "mean", "neighbor", "sample"]

# Replacements that are one token of the tokenizer: our name, and the tokenizer's.
TOKENS = {"unknown": "unk", "mask": "mask", "pad": "pad"}
CHUNK = 32  # masked texts to run at once
VOCABULARY_CHUNK = 4096  # embeddings to average at once


class Change(NamedTuple):
    """A text with one token changed.

    column: the index of the token. token: the id in its place; None if there is none.
    """

    column: int
    token: int | None


def resolve_replacement(loaded: LoadedModel, replacement: Replacement | None = None) -> Replacement:
    """Return the replacement to use with a model.

    replacement: None for the default: "unknown" for classifiers whose tokenizer has an unknown
    token of its own, "mean" for language models and other classifiers. The unknown token of many
    decoders is their end-of-text token.
    Raises InputError for an unknown replacement, and for one that the model does not support.
    """
    if replacement is None:
        has_unknown = loaded.task == "classifier" and _has_unknown(loaded.tokenizer)
        return "unknown" if has_unknown else "mean"
    check_choice("replacement", replacement, get_args(Replacement))
    if replacement in TOKENS:
        find_token(loaded, replacement)
    if replacement == "sample":
        if loaded.task not in ("causal_lm", "masked_lm"):
            raise InputError(
                f"replacement is 'sample', and {loaded.name} cannot sample tokens of its input",
                expected="a causal or a masked language model",
                fix="Use replacement='neighbor', or None for the default.",
            )
        if loaded.task == "masked_lm":
            find_token(loaded, "mask")
    return replacement


def find_token(loaded: LoadedModel, name: str) -> int:
    """Return the id of the "unknown", "mask" or "pad" token.

    Raises InputError, with the tokens that exist, if the tokenizer has no such token.
    """
    ids = {
        ours: getattr(loaded.tokenizer, f"{theirs}_token_id", None)
        for ours, theirs in TOKENS.items()
    }
    token = ids.get(name)
    if token is not None:
        return int(token)
    others = [repr(other) for other, i in ids.items() if i is not None]
    raise InputError(
        f"the tokenizer of {loaded.name} has no {name} token",
        expected="a token to replace others with",
        fix=f"It has {', '.join(others) or 'none of these tokens'}.",
    )


def find_changes(
    loaded: LoadedModel, target: Target, replacement: Replacement, *, samples: int, seed: int
) -> list[Change]:
    """Return the changed texts, in the order of their tokens.

    Each token has one change, or with "sample" as many as `samples`.
    Raises InputError if no token can be changed.
    """
    columns = _find_columns(loaded, target, replacement)
    if replacement in ("remove", "mean"):
        return [Change(column, None) for column in columns]
    if replacement == "neighbor":
        return _find_neighbors(loaded, target, columns)
    if replacement == "sample":
        return _sample(loaded, target, columns, samples, seed)
    token = find_token(loaded, replacement)
    return [Change(column, token) for column in columns]


def run_changes(
    loaded: LoadedModel,
    targets: Sequence[Target],
    changes: Sequence[Sequence[Change]],
    replacement: Replacement,
) -> list[Any]:
    """Run the model once on all changed texts. changes: those of each target.

    Returns the logits [changes, classes] for each target.
    """
    torch = import_optional("torch", "blank-out")
    sizes = [len(part) for part in changes]
    rows = torch.arange(len(targets)).repeat_interleave(torch.tensor(sizes))
    flat = [change for part in changes for change in part]
    columns = torch.tensor([change.column for change in flat])
    owners = [target for target, size in zip(targets, sizes, strict=True) for _ in range(size)]
    positions = [owner.position for owner in owners]
    inputs = collate(loaded, [target.encoded for target in targets])
    place: AbstractContextManager[None] = nullcontext()
    if replacement == "remove":
        inputs = {name: _remove(name, values, rows, columns) for name, values in inputs.items()}
        if loaded.task != "seq2seq":
            # A decoder without the token at its position predicts from the token before.
            positions = [p - (c <= p) for p, c in zip(positions, columns.tolist(), strict=True)]
    else:
        inputs = {name: values[rows.to(values.device)] for name, values in inputs.items()}
    if replacement == "mean":
        place = replace_embeddings(loaded, _vector_placer(mean_embedding(loaded), columns))
    elif replacement != "remove":
        ids = torch.tensor([change.token for change in flat]).to(inputs["input_ids"])
        inputs["input_ids"][torch.arange(len(flat)), columns] = ids
    with place:
        logits = run(loaded, inputs, [owner.encoded for owner in owners], positions)
    return list(logits.split(sizes))


def _vector_placer(vector: Any, columns: Any) -> Callable[[Any], Any]:
    """Return a function that puts a vector [width] in place of one embedding of each row.

    The function takes and returns embeddings [rows, tokens, width]. columns: the token of each row.
    """

    def put_vector(embeddings: Any) -> Any:
        embeddings = embeddings.clone()
        embeddings[range(len(columns)), columns] = vector.to(embeddings.dtype)
        return embeddings

    return put_vector


def mean_embedding(loaded: LoadedModel) -> Any:
    """Return the mean [width] of the embeddings of all tokens that the tokenizer has."""
    torch = import_optional("torch", "blank-out")
    layer = input_embeddings(loaded)
    n = min(len(loaded.tokenizer), int(layer.weight.shape[0]))
    ids = torch.arange(n, device=layer.weight.device)
    # The module, not its weights, because some models scale embeddings there.
    with torch.no_grad():
        parts = [layer(part[None])[0].double().sum(0) for part in ids.split(VOCABULARY_CHUNK)]
    return torch.stack(parts).sum(0) / n


def _has_unknown(tokenizer: Any) -> bool:
    """Whether the tokenizer has an unknown token that is not its end-of-text token as well."""
    unknown = getattr(tokenizer, "unk_token_id", None)
    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    return unknown is not None and unknown not in {getattr(tokenizer, name, None) for name in names}


def _find_columns(loaded: LoadedModel, target: Target, replacement: Replacement) -> list[int]:
    """Return the tokens without which the model can still predict."""
    n = target.encoded.n_inputs
    columns = list(range(n))
    is_alone = replacement == "remove" and loaded.task == "causal_lm" and target.position == 0
    has_no_context = replacement == "sample" and start_token(loaded) is None
    if loaded.task == "masked_lm":
        columns.remove(target.position)
    elif is_alone or has_no_context:
        columns.remove(0)
    if not columns or (replacement == "remove" and n == 1):
        raise InputError(
            f"the text has only one token, and replacement is {replacement!r}",
            expected="at least two tokens",
            fix="Use a longer text, or replacement='mean'.",
        )
    return columns


def _find_neighbors(loaded: LoadedModel, target: Target, columns: Sequence[int]) -> list[Change]:
    """Replace each token by the nearest other one before it, or else after it.

    Special tokens, masks and tokens that are equal to it are passed over.
    """
    ids = target.encoded.inputs["input_ids"][0].tolist()
    mask = getattr(loaded.tokenizer, "mask_token_id", None)
    usable = [i for i, token in enumerate(ids) if not target.encoded.special[i] and token != mask]
    changes = []
    for column in columns:
        others = [i for i in usable if ids[i] != ids[column]]
        if not others:
            raise InputError(
                f"token {column} of the text has no neighbor",
                expected="at least two different words with replacement='neighbor'",
                fix="Use a longer text, or replacement='mean'.",
            )
        before = [i for i in others if i < column]
        changes.append(Change(column, ids[before[-1] if before else others[0]]))
    return changes


def _sample(
    loaded: LoadedModel, target: Target, columns: Sequence[int], samples: int, seed: int
) -> list[Change]:
    """Draw other tokens from what the language model itself expects at each token.

    A decoder sees the tokens before it, and a masked language model all other tokens. Special
    tokens and the token itself are not drawn.
    """
    torch = import_optional("torch", "blank-out")
    expect = _expect_masked if loaded.task == "masked_lm" else _expect_next
    logits = expect(loaded, target.encoded, columns).cpu().double()  # [columns, vocabulary]
    ids = target.encoded.inputs["input_ids"][0, list(columns)]
    logits[torch.arange(len(columns)), ids] = -torch.inf
    logits[:, list(loaded.tokenizer.all_special_ids)] = -torch.inf
    logits[:, len(loaded.tokenizer) :] = -torch.inf
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.multinomial(logits.softmax(-1), samples, replacement=True, generator=generator)
    return [
        Change(column, token)
        for column, tokens in zip(columns, drawn.tolist(), strict=True)
        for token in tokens
    ]


def _expect_next(loaded: LoadedModel, encoded: EncodedText, columns: Sequence[int]) -> Any:
    """Return a decoder's logits [columns, vocabulary] for each token, given those before it."""
    torch = import_optional("torch", "blank-out")
    inputs = collate(loaded, [encoded])
    parts = []
    if columns[0] == 0:  # nothing comes before it but the start of the text
        start = torch.full_like(inputs["input_ids"][:, :1], start_token(loaded))
        parts.append(loaded.model(input_ids=start).logits[0, -1:])
    rest = [column - 1 for column in columns if column > 0]
    parts.append(loaded.model(**inputs).logits[0, rest])
    return torch.cat(parts)


def _expect_masked(loaded: LoadedModel, encoded: EncodedText, columns: Sequence[int]) -> Any:
    """Return a masked language model's logits [columns, vocabulary] for each token, masked."""
    torch = import_optional("torch", "blank-out")
    mask = find_token(loaded, "mask")
    inputs = collate(loaded, [encoded])
    parts = []
    for part in torch.tensor(columns).split(CHUNK):
        rows = torch.arange(len(part))
        masked = {name: values.repeat(len(part), 1) for name, values in inputs.items()}
        masked["input_ids"][rows, part] = mask
        parts.append(loaded.model(**masked).logits[rows, part])
    return torch.cat(parts)


def start_token(loaded: LoadedModel) -> int | None:
    """Return the id that begins a text for a decoder: beginning of text, or else end of text."""
    ids = (getattr(loaded.tokenizer, f"{name}_token_id", None) for name in ("bos", "eos"))
    return next((int(i) for i in ids if i is not None), None)


def _remove(name: str, values: Any, rows: Any, columns: Any) -> Any:
    """Copy rows of an input [texts, tokens], each without one column, except a decoder's inputs."""
    if name.startswith("decoder_"):
        return values[rows.to(values.device)]
    torch = import_optional("torch", "blank-out")
    kept = torch.arange(values.shape[1] - 1).expand(len(rows), -1)
    kept = kept + (kept >= columns[:, None]).long()
    return values[rows.to(values.device)].gather(1, kept.to(values.device))
