"""Studies: which explanation to trust, measured on a model and a data set.

Texts and a model enter; the values of metrics leave, for each text, explainer and replacement, as
Parquet shards (the machinery is that of `attnflow.corpus`), and tables and reports made of them.

Reading order: `case` is a text with the prediction that is explained; `explainers` lists what is
compared, computed by the methods, by `opponents` and by `baselines`; `masked_model` asks the model
about texts without some of their tokens. The metrics themselves are in `attnflow.evaluation`.
"""
