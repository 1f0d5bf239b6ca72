"""Training of the verb-number model of section 2 of the paper.

A data folder, or the grammar, goes in; a trained model, its vocabulary and its accuracy on held-out
sets come out. The model itself is in `attnflow.models.builtin.verb_number`. Reading order:

- `splits`: the examples for training, those held out, and the words that the model knows.
- `encoded_examples`: examples as tensors, batches, words replaced at random, and accuracy.
- `ensemble`: several models of the same size, trained as one.
- `trainer`: the training loop, and checkpoints to resume from.
"""
