import numpy as np
import pytest
import torch

from attnflow import Attribution
from attnflow.errors import FileError, SelectionError, ShapeError
from attnflow.storage import write
from tests.refusal import refusal
from tests.weights import random_attention

TOKENS = ("the", "key", "to", "the")
# Layers 2 and 4, positions 1 and 3.
SCORES = np.asarray(
    [
        [[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]],
        [[0.25, 0.5, 0.0, 0.25], [0.0, 0.0, 1.0, 0.0]],
    ]
)


def make(scores=SCORES, **options):
    settings = {"residual_weight": 0.5}
    return Attribution(scores, TOKENS, "rollout", (2, 4), (1, 3), settings=settings, **options)


def test_a_position_is_found_by_token_or_index():
    attribution = make()
    for position in ("key", 1, -3, np.int64(1)):
        np.testing.assert_array_equal(attribution[position], SCORES[:, 0])
    np.testing.assert_array_equal(attribution[-1], SCORES[:, 1])


def test_a_row_is_found_by_position_and_layer():
    attribution = make()
    assert attribution.row(position="key", layer=2).tolist() == [0.1, 0.2, 0.3, 0.4]
    assert attribution.row(position="key", layer=-2).tolist() == [0.1, 0.2, 0.3, 0.4]
    assert attribution.row(position=3).tolist() == [0.0, 0.0, 1.0, 0.0]


def test_the_highest_scores_come_first_and_ties_in_order():
    assert make().top(3, position="key") == [("key", 1, 0.5), ("the", 0, 0.25), ("the", 3, 0.25)]
    assert make().top(1, position=3, layer=2) == [("the", 0, 0.4)]
    assert len(make().top(10, position=1)) == 4


def test_a_choice_of_tokens_is_labelled():
    attribution = make(SCORES[..., [3, 1]], columns=(3, 1))
    assert attribution.top(1, position="key", layer=2) == [("the", 3, 0.4)]
    assert attribution.columns == (3, 1)


def test_an_ambiguous_or_unknown_token_is_refused():
    with refusal(SelectionError, "'the'", "0", "3"):
        make()["the"]
    with refusal(SelectionError, "'keys'", "'key'"):
        make()["keys"]


def test_what_was_not_computed_is_refused():
    with refusal(SelectionError, "0", "1", "3"):
        make()[0]
    with refusal(SelectionError, "3", "2", "4"):
        make().row(position=1, layer=3)
    with refusal(SelectionError, "4"):
        make()[4]


def test_scores_must_fit_their_labels():
    with refusal(ShapeError, "[2, 2, 3]", "[2, 2, 4]"):
        make(SCORES[..., :3])


def test_positions_cannot_be_iterated_over():
    # attribution[0], attribution[1], ... would stop at the first position that was not computed.
    with pytest.raises(TypeError, match="not iterable"):
        list(make())


def test_one_example_of_a_batch():
    batch = make(np.stack([SCORES, 2 * SCORES]))
    assert batch["key"].shape == (2, 2, 4)
    np.testing.assert_array_equal(batch.example(1).scores, 2 * SCORES)
    with refusal(ShapeError, "[2, 2, 2, 4]", "attribution.example(i)"):
        batch.top(1, position="key")


def test_the_representation_is_short():
    assert repr(make()) == "Attribution(rollout: layers 2, 4, 2 positions, 4 tokens)"
    assert (
        repr(make(SCORES[None])) == "Attribution(1 x rollout: layers 2, 4, 2 positions, 4 tokens)"
    )
    deep = Attribution(np.ones((6, 1, 1)), ("a",), "flow", tuple(range(1, 7)), (0,))
    assert repr(deep) == "Attribution(flow: layers 1 to 6, 1 position, 1 token)"


def test_tensors_come_to_numpy():
    attribution = make(torch.as_tensor(SCORES))
    assert isinstance(attribution.to_numpy(), np.ndarray)
    assert isinstance(attribution["key"], torch.Tensor)
    np.testing.assert_array_equal(attribution.to_numpy(), SCORES)


def test_what_is_saved_comes_back(tmp_path):
    path = tmp_path / "a.safetensors"
    tokens = ("😀", "שלום", "\"'<b>", "", "a\nb", "\ud83d")
    settings = {"heads": "mean", "residual_weight": [0.5, 0.25], "normalize": "none"}
    scores = random_attention(2, 1, 2, 6).astype(np.float32)
    saved = Attribution(scores, tokens, "flow", (3,), (0, 5), settings=settings)
    saved.save(path)
    loaded = Attribution.load(path)
    np.testing.assert_array_equal(loaded.scores, scores)
    assert loaded.scores.dtype == np.float32
    for name in ("tokens", "method", "layers", "positions", "columns", "settings"):
        assert getattr(loaded, name) == getattr(saved, name)


def test_a_file_without_its_labels_is_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    write(path, kind="attribution", arrays={"scores": SCORES}, header={"tokens": list(TOKENS)})
    with refusal(FileError, "'columns'"):
        Attribution.load(path)
    write(path, kind="attentions", arrays={"scores": SCORES}, header={})
    with refusal(FileError, path, "attentions", "attribution"):
        Attribution.load(path)


def test_tokens_of_a_byte_level_vocabulary_are_shown_as_text():
    tokens = ("The", "\u0120caf\u00c3\u00a9", "\u0120The")
    attribution = Attribution(np.asarray([[[0.2, 0.5, 0.3]]]), tokens, "rollout", (1,), (2,))
    assert attribution.labels == ("The", "café", "The")
    assert attribution.top(1) == [("café", 1, 0.5)]
    frame = attribution.to_pandas()
    assert list(frame.token) == ["The", "café", "The"]
    assert list(frame.piece) == list(tokens)
    with refusal(SelectionError, "' The'", "positions 0, 2"):
        attribution.row(position=" The")
