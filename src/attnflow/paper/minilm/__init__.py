"""Training of the MiniLM adapters: a sentiment classifier and a masked language model.

A data folder goes in; a folder with an adapter, and its accuracy on held-out texts, come out. The
adapters and the encoder are in `attnflow.models.builtin.minilm`. Reading order:

- `texts`: the texts for training and the held-out ones, and the model that generates stories.
- `adapter_trainer`: masking, the training loop, and accuracy.
"""
