"""Masked tokens for a masked language model to guess."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

SHARE = 0.15  # of the tokens are asked for (Devlin et al. 2019); of these,
MASKED, RANDOM = 0.8, 0.1  # are masked, or replaced by a random token; the rest stay
PRONOUNS = ("he", "she", "his", "her", "him", "hers", "himself", "herself")
PRONOUN_SHARE = 0.5  # of pronouns with a gender, which are rare in text, are asked for
IGNORED = -100  # the label of tokens that are not asked for


class Masking:
    """Chooses tokens to ask for. Random numbers come from torch's generator."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.special = torch.tensor(tokenizer.all_special_ids)
        self.pronoun_ids = torch.tensor(tokenizer.convert_tokens_to_ids(list(PRONOUNS)))
        self.his, self.her = tokenizer.convert_tokens_to_ids(["his", "her"])

    def mask(self, ids: Tensor, *, only_masks: bool = False) -> tuple[Tensor, Tensor]:
        """The ids with tokens masked, and labels that say what they were.

        only_masks: whether all that is asked for is masked, and pronouns are asked for no more
        than the rest, as when the model is judged.
        """
        chance = torch.full(ids.shape, SHARE)
        if not only_masks:
            chance[torch.isin(ids, self.pronoun_ids)] = PRONOUN_SHARE
        chance[torch.isin(ids, self.special)] = 0.0
        asked = torch.rand(ids.shape) < chance
        draw = torch.zeros(ids.shape) if only_masks else torch.rand(ids.shape)
        mask = torch.tensor(self.tokenizer.mask_token_id)
        masked = torch.where(asked & (draw < MASKED), mask, ids)
        replaced = asked & (draw >= MASKED) & (draw < MASKED + RANDOM)
        noise = torch.randint(len(self.tokenizer), ids.shape)
        labels = torch.where(asked, ids, torch.tensor(IGNORED))
        return torch.where(replaced, noise, masked), labels

    def pronouns(self, row: Tensor) -> Iterator[tuple[Tensor, int, int]]:
        """The row with one "his" or "her" masked, where that is, and which of them it was."""
        for i, word in enumerate(row.tolist()):
            if word in (self.his, self.her):
                masked = row.clone()
                masked[i] = self.tokenizer.mask_token_id
                yield masked, i, word
