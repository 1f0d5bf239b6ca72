"""The paper's tables and figures, and the questions that the paper leaves open.

`attnflow reproduce NAME` runs one; `docs/paper.md` shows all results. Sentences and a model go in;
a Result, saved as JSON, and figures come out. Reading order:

- `experiment`: the list of all experiments, their options and results. `report`: text and tables.
- `sentences` reads sentences, `measurements` measures and caches them, `correlations` compares.
- `agreement` and `agreement_tables`: tables 1 and 2. `table3`. `sentence_figures`: figures 1 to 3.
  `figure4`.
- Beyond the paper: `accuracy`, `graph_variants` (decoders, edges, residual weights), `saturation`,
  and in `agreement_tables` tables 1 and 2 for several trained models.
"""
