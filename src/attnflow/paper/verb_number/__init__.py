"""Training of the verb-number model of section 2 of the paper.

A data folder, or the grammar, goes in; a trained model, its vocabulary and its accuracy on held-out
sets come out. The model itself is in `attnflow.models.builtin.verb_number`. Reading order:

- `splits`: the examples for training, those held out, and the words that the model knows.
- `objective`: encoded examples, batches, the loss with its auxiliary tasks, and accuracy.
- `trainer`: the training loop, and checkpoints to resume from.
"""
