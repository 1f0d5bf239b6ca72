"""Built-in models: small models that attnflow brings along, for demos, tests and the paper.

`load_model("verb-number")` asks `folders` for the folder of that name, and loads it with
`verb_number` or `minilm`:

- "verb-number" and "verb-number-causal" (`verb_number`) predict whether the verb after a text is
  singular or plural, as in section 2 of the paper. All of their weights are here.
- "minilm-sst2" and "minilm-mlm" (`minilm`) are adapters: a sentiment classifier and a masked
  language model on top of a MiniLM encoder, which the `minilm` extra installs.

`weights/` holds one folder for each model. A folder that `attnflow train` wrote is found by its
path in the same way. Read `folders`, then `verb_number`, then `minilm`. Training is in
`attnflow.paper`.
"""
