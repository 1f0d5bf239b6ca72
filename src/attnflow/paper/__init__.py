"""The research: the paper's experiments, their data sets, and the training of the bundled models.

Reproduces Abnar and Zuidema, "Quantifying Attention Flow in Transformers" (ACL 2020). Only the
command line imports this package. Data sets and checkpoints go in; results as JSON, figures and
trained weights come out. Reading order:

- `data` reads the published data sets and generates sentences.
- `verb_number` trains the model of tables 1 and 2; `minilm` trains the adapters of table 3 and
  figure 4. The trained models themselves are in `attnflow.models.builtin`.
- `experiments` computes and renders the tables and figures.
"""
