"""Texts with images, for decoders that have image tokens among their own: LLaVA, Qwen-VL, Gemma 3.

`encode_with_images` turns a text or a chat and its images into tokens and tensors, by the processor
of the model. Each image token is named after its image and its patch. The image as the model sees
it, with its grid of patches, is part of the result. Vision models without text are in
`attnflow.models.vision`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from math import isqrt, log
from typing import Any

import numpy as np

from attnflow.arrays import to_numpy
from attnflow.errors import FileError, InputError, first_line, quote
from attnflow.explanation import ImageGrid
from attnflow.models.chats import ASSISTANT, content_of, is_chat
from attnflow.models.hub import hub_access
from attnflow.models.inputs import EncodedText, name_tokens
from attnflow.models.loading import LoadedModel
from attnflow.models.vision import open_image, to_png, to_rgb, unnormalize
from attnflow.optional import import_optional
from attnflow.units import find_words

LONGEST_SIDE = 896  # pixels of an image that is displayed as it was given
IMAGE_TOKEN = ("image_token_id", "image_token_index")  # entries of configurations
# Where configurations and processors say how many tokens a view of an image has.
VIEW_SIZES = ("mm_tokens_per_image", "image_seq_length", "image_seq_len")


@dataclass(frozen=True, eq=False)
class EncodedTextWithImages(EncodedText):
    """A text with images as the model sees it. grids: the images that are drawn, in order."""

    grids: tuple[ImageGrid, ...] = ()

    @property
    def image(self) -> ImageGrid | None:
        """The first image; None if its tokens do not form a grid."""
        return self.grids[0] if self.grids else None

    @property
    def media(self) -> frozenset[str]:
        """The names of inputs that have no axis of tokens, such as pixel_values."""
        tokens = 1, self.n_inputs
        return frozenset(name for name, value in self.inputs.items() if value.shape[:2] != tokens)


@dataclass(frozen=True)
class View:
    """Tokens that show an image, or a part of it.

    image: its index. first, size: of its tokens. part: "" for the whole image, or a name such as
    "tile 2". rows, columns: of patches; 0 if the tokens form no grid.
    line: for one line of patches of the image, its number.
    """

    image: int
    first: int
    size: int
    part: str = ""
    rows: int = 0
    columns: int = 0
    line: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the tokens are the patches of the whole image, one after another."""
        return not self.part and self.rows > 0 and self.line is None

    def names(self) -> list[str]:
        """The names of the tokens."""
        start = f"image {self.image + 1} {self.part}".strip()
        if not self.rows:
            return [f"{start} patch {i}" for i in range(self.size)]
        return [
            f"{start} patch {row + (self.line or 0)},{column}"
            for row in range(self.rows)
            for column in range(self.columns)
        ]


def encode_with_images(loaded: LoadedModel, text: Any, images: Any) -> EncodedTextWithImages:
    """Turn a text or a chat and its images into tokens and tensors.

    text: a string, which may contain the image token of the model for each image; without, the
    images come first, in the form of the model's chat template if it has one. Or a list of messages
    {"role": ..., "content": ...}, whose contents may have parts of type "image"; if the last one is
    the assistant's, it is the answer to explain.
    images: an image as in `explain_image`, or a list of them.
    Raises InputError for a model that takes no images, or another number of images than the text
    has places for; FileError if there is no processor.
    """
    token = _image_token(loaded)
    pictures = [to_rgb(open_image(image)[1]) for image in _as_list(images)]
    processor = find_processor(loaded)
    answer = None
    if is_chat(text) and text[-1]["role"] == ASSISTANT:
        *text, last = text
        answer = content_of(last)
    prompt = _write_prompt(processor, text, len(pictures))
    batch = _process(loaded, processor, prompt, pictures)
    parameters = signature(loaded.model.forward).parameters
    inputs = {
        name: value
        for name, value in batch.items()
        if name in parameters or name in {"input_ids", "attention_mask"}
    }
    ids = [int(i) for i in batch["input_ids"][0]]
    _check_length(loaded, len(ids))
    views = find_views(loaded, processor, batch, ids, token, len(pictures))
    tokens, special = _name_tokens(loaded.tokenizer, ids, views)
    patches = {i for view in views for i in range(view.first, view.first + view.size)}
    words = find_words(tokens, special=[mark or i in patches for i, mark in enumerate(special)])
    words = replace(words, special=tuple(special[group[0]] for group in words.groups))
    return EncodedTextWithImages(
        prompt,
        tuple(tokens),
        tuple(special),
        words,
        inputs,
        continuation=answer,
        grids=tuple(_grids(processor, batch, views, pictures)),
    )


def find_processor(loaded: LoadedModel) -> Any:
    """The processor of texts and images: the one that was passed, or the one saved with the model.

    Raises FileError if there is none.
    """
    if loaded.processor is not None:
        return loaded.processor
    transformers = import_optional("transformers", "loading a processor")
    try:
        with hub_access(loaded.name):
            processor = transformers.AutoProcessor.from_pretrained(
                loaded.name, trust_remote_code=False
            )
    except Exception as error:  # transformers raises many kinds of errors
        raise FileError(
            f"no processor can be loaded from {loaded.name} ({first_line(error)})",
            expected="a processor of texts and images beside the model",
            fix="Pass it as tokenizer=processor, with processor = AutoProcessor.from_pretrained.",
        ) from error
    if not hasattr(processor, "image_processor"):
        raise FileError(
            f"{loaded.name} has no processor of images",
            expected="preprocessor_config.json beside the model",
            fix="Write it there with processor.save_pretrained, or pass tokenizer=processor.",
        )
    return processor


def _image_token(loaded: LoadedModel) -> int:
    """The id of the token that stands for each part of an image."""
    config = getattr(loaded.model, "config", None)
    for name in IMAGE_TOKEN:
        if isinstance(getattr(config, name, None), int):
            return int(getattr(config, name))
    raise InputError(
        f"images were given, and {loaded.name} has no image tokens",
        expected="a decoder that takes images, such as LLaVA, Qwen-VL or Gemma 3",
        fix="For vision models, use explain_image(image, model).",
    )


def _as_list(images: Any) -> list[Any]:
    items = list(images) if isinstance(images, list | tuple) else [images]
    if not items:
        raise InputError("images is empty", expected="at least one image", fix="Leave images out.")
    return items


def _write_prompt(processor: Any, text: Any, n_images: int) -> str:
    """The text that the processor gets, with a place for each image."""
    names = ("boi_token", "image_token")  # Gemma 3 writes one that starts the image
    place = str(next(filter(None, (getattr(processor, name, None) for name in names)), "<image>"))
    if isinstance(text, str):
        n_places = text.count(place)
        if n_places == n_images:
            return text
        if n_places:
            raise _wrong_number(n_images, n_places, place)
        if not _has_template(processor):
            return "\n".join([*[place] * n_images, text])
        text = [{"role": "user", "content": text}]
    messages = _add_images(text, n_images)
    if not _has_template(processor):
        raise InputError(
            "a chat was given, and the processor has no chat template",
            expected="a model that was trained on chats",
            fix="Pass a text.",
        )
    try:
        return str(
            processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        )
    except Exception as error:  # templates raise errors of their own
        raise InputError(
            f"the chat template of the processor refuses the messages ({first_line(error)})",
            expected="the roles and the order that the template knows",
            fix="Check the roles; most templates start with a system or user message.",
        ) from error


def _has_template(processor: Any) -> bool:
    sources = (processor, processor.tokenizer)
    return any(getattr(source, "chat_template", None) for source in sources)


def _add_images(messages: Any, n_images: int) -> list[dict[str, Any]]:
    """Messages whose contents are lists of parts; images before the first user's text if absent."""
    if not is_chat(messages):
        raise InputError(
            f"the text is {quote(messages)}",
            expected='a text, or messages such as {"role": "user", "content": "What is this?"}',
            fix="Pass one of these. Images cannot be combined with token ids or several texts.",
        )
    chat: list[dict[str, Any]] = []
    for message in messages:
        content_of(message)  # checks it
        content = message.get("content") or ""
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        chat.append({**message, "content": parts})
    parts = [part for message in chat for part in message["content"]]
    found = sum(isinstance(part, Mapping) and part.get("type") == "image" for part in parts)
    if found not in (0, n_images):
        raise _wrong_number(n_images, found, '{"type": "image"}')
    if not found:
        first = next((message for message in chat if message.get("role") == "user"), chat[0])
        first["content"] = [{"type": "image"}] * n_images + first["content"]
    return chat


def _wrong_number(n_images: int, n_places: int, place: str) -> InputError:
    return InputError(
        f"{n_images} images were given, and the text has {n_places} times {place}",
        expected="a place for each image, or none",
        fix=f"Write {place} once for each image, or leave it out.",
    )


def _process(loaded: LoadedModel, processor: Any, prompt: str, pictures: list[Any]) -> Any:
    start = getattr(loaded.tokenizer, "bos_token", None)
    # A chat template writes the first token itself.
    options = {"add_special_tokens": False} if start and prompt.startswith(start) else {}
    try:
        return processor(text=[prompt], images=pictures, return_tensors="pt", **options)
    except Exception as error:  # processors raise many kinds of errors
        raise InputError(
            f"the processor of {loaded.name} cannot read the text and {len(pictures)} images "
            f"({first_line(error)})",
            expected="a text with a place for each image",
            fix="Check the text, the images and the processor.",
        ) from error


def _check_length(loaded: LoadedModel, n: int) -> None:
    limit = loaded.max_length
    if limit is not None and n > limit:
        raise InputError(
            f"text and images have {n} tokens, and {loaded.name} takes {limit}",
            expected=f"at most {limit}",
            fix="Shorten the text, or use smaller or fewer images.",
        )


def find_views(
    loaded: LoadedModel,
    processor: Any,
    batch: Any,
    ids: Sequence[int],
    token: int,
    n_images: int,
) -> list[View]:
    """Find which tokens show which image, or which part of it.

    Images of Qwen-VL have grids of their own sizes. Models that cut an image into tiles add a view
    of the whole image, as the last one, or as the first (LLaVA-NeXT). Pixtral has a token after
    each line of patches, so that an image is several views of one line.
    """
    runs = _runs(ids, token)
    grid_sizes = batch.get("image_grid_thw")
    if grid_sizes is not None and len(grid_sizes) == len(runs) == n_images:
        merged = int(getattr(processor.image_processor, "merge_size", None) or 1)
        sizes = [(int(h) // merged, int(w) // merged) for _, h, w in grid_sizes]
        return [
            View(i, first, n, rows=rows if rows * columns == n else 0, columns=columns)
            for i, ((first, n), (rows, columns)) in enumerate(zip(runs, sizes, strict=True))
        ]
    if getattr(processor, "image_break_token", None):
        return _lines(runs)
    view_sizes = _view_sizes(loaded, processor)
    runs = _split_joined(runs, n_images, view_sizes)
    if len(runs) % n_images:
        return [View(0, first, n, f"part {i + 1}") for i, (first, n) in enumerate(runs)]
    each = len(runs) // n_images
    views = []
    for i in range(n_images):
        pieces = _split_runs(runs[i * each :][:each], view_sizes)
        views += _name_views(i, pieces, _aspect(batch))
    return views


def _runs(ids: Sequence[int], token: int) -> list[tuple[int, int]]:
    """The start and length of each row of equal tokens."""
    runs: list[tuple[int, int]] = []
    for i, each in enumerate(ids):
        if each != token:
            continue
        if runs and sum(runs[-1]) == i:
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        else:
            runs.append((i, 1))
    return runs


def _split_joined(
    runs: list[tuple[int, int]], n_images: int, sizes: Sequence[int]
) -> list[tuple[int, int]]:
    """Split runs of images that follow one another without a token between them.

    Only if all images have as many tokens as a view has: otherwise, the runs stay as they are.
    """
    size, rest = divmod(sum(n for _, n in runs), n_images)
    if len(runs) >= n_images or rest or size not in sizes or any(n % size for _, n in runs):
        return runs
    return [(first + i, size) for first, n in runs for i in range(0, n, size)]


def _lines(runs: list[tuple[int, int]]) -> list[View]:
    """Lines of patches with one token between them, and more between images."""
    views: list[View] = []
    for first, n in runs:
        last = views[-1] if views else None
        image, line = 0, 0
        if last is not None:
            continues = last.first + last.size + 1 == first and last.columns == n
            image, line = last.image + (not continues), ((last.line or 0) + 1) * continues
        views.append(View(image, first, n, rows=1, columns=n, line=line))
    return views


def _view_sizes(loaded: LoadedModel, processor: Any) -> list[int]:
    """How many tokens a view of an image may have, the most reliable number first."""
    config = loaded.model.config
    vision = getattr(config, "vision_config", None)
    sizes = [getattr(source, name, None) for name in VIEW_SIZES for source in (processor, config)]
    image, patch = (getattr(vision, name, None) for name in ("image_size", "patch_size"))
    if isinstance(image, int) and isinstance(patch, int):
        sizes.append((image // patch) ** 2)
    return [size for size in sizes if isinstance(size, int) and size > 0]


def _split_runs(runs: list[tuple[int, int]], sizes: list[int]) -> list[tuple[int, int]]:
    """Views of an image, each with its start and length. The whole image comes last."""
    if len(runs) > 1:
        return runs
    [(first, n)] = runs
    for size in sizes:
        if n > size and n % size == 0:
            return [(first + i, size) for i in range(0, n, size)]
    # A view of the whole image, followed by details with a token at the end of each line.
    base = next((size for size in sizes if n > size), None)
    if base is not None and isqrt(n) ** 2 != n:
        return [(first + base, n - base), (first, base)]
    return runs


def _name_views(image: int, pieces: list[tuple[int, int]], aspect: float) -> list[View]:
    """Name the views of an image; the last one shows the whole image."""
    views = []
    for i, (first, n) in enumerate(pieces):
        is_whole = i == len(pieces) - 1
        rows, columns = _find_grid(n, aspect)
        part = "" if is_whole else f"tile {i + 1}"
        views.append(View(image, first, n, part, rows, columns))
    return sorted(views, key=lambda view: view.first)


def _find_grid(n: int, aspect: float) -> tuple[int, int]:
    """Rows and columns of n patches: a square, or else nearest to the aspect, height / width."""
    if isqrt(n) ** 2 == n:
        return isqrt(n), isqrt(n)
    pairs = [(rows, n // rows) for rows in range(1, n + 1) if n % rows == 0]
    rows, columns = min(pairs, key=lambda pair: abs(log(pair[0] / pair[1] / aspect)))
    return (rows, columns) if abs(log(rows / columns / aspect)) < log(1.5) else (0, 0)


def _aspect(batch: Any) -> float:
    """Height / width of the pixels that the model gets; 1 if they have no such axes."""
    pixels = batch.get("pixel_values")
    shape: tuple[int, ...] = tuple(getattr(pixels, "shape", ()))
    return float(shape[-2] / shape[-1]) if len(shape) >= 4 else 1.0


def _name_tokens(
    tokenizer: Any, ids: Sequence[int], views: Sequence[View]
) -> tuple[list[str], list[bool]]:
    """The tokens by name, and whether each is special; patches are not."""
    tokens = name_tokens(tokenizer, ids)
    marked = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    special = [i in marked for i in ids]
    for view in views:
        tokens[view.first : view.first + view.size] = view.names()
        special[view.first : view.first + view.size] = [False] * view.size
    return tokens, special


def _grids(
    processor: Any, batch: Any, views: Sequence[View], pictures: Sequence[Any]
) -> list[ImageGrid]:
    """The images whose tokens form a grid, as the model sees them."""
    grids = []
    for view in views:
        if not view.is_whole:
            continue
        pixels = _seen_pixels(processor, batch, view, len(pictures), views)
        if pixels is None:
            picture = pictures[view.image].copy()
            picture.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
            pixels = np.asarray(picture, dtype=np.float64) / 255
        height, width = pixels.shape[:2]
        png = to_png(pixels)
        grids.append(ImageGrid(png, view.rows, view.columns, view.first, width, height))
    return grids


def _seen_pixels(
    processor: Any, batch: Any, view: View, n_images: int, views: Sequence[View]
) -> Any:
    """The pixels [height, width, channels] of a view of the whole image; None if unknown."""
    pixels = batch.get("pixel_values")
    shape = tuple(getattr(pixels, "shape", ()))
    if len(shape) < 4 or shape[-3] != 3:
        return None
    stacked = to_numpy(pixels.float()).reshape(-1, *shape[-3:])
    each, rest = divmod(len(stacked), n_images)
    if rest:
        return None
    starts = [other.first for other in views if other.image == view.image]
    place = 0 if view.first == min(starts) else each - 1
    seen = stacked[view.image * each + place].astype(np.float64)
    return unnormalize(processor.image_processor, seen)
