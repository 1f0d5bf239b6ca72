"""The paper's verb-number model: its tokenizer, its training, and trained weights."""
