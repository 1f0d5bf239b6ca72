"""Studies: which explanation to trust, measured on a model and a data set.

Texts and a model enter; the values of metrics leave, for each text, explainer and replacement, as
Parquet shards (the machinery is that of `attnflow.corpus`), and tables and reports made of them.

Reading order: `case` is a text with the prediction that is explained (`image_case` an image);
`explainers` lists what is compared, computed by the methods, by `opponents` and by `baselines`;
`masked_model` asks the model about texts without some of their tokens; `evaluator` puts these
together for one text, as a `design` says. `study` runs and reads, `table` summarizes, `findings`
says it in words, `html_report` and `export` write it. `check` is for one explanation. The metrics
themselves are in `attnflow.evaluation`.
"""
