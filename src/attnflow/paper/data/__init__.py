"""Data sets for training and experiments: reading, extracting, generating and downloading them.

Files in the published formats go in; AgreementExample and SentimentExample come out. Nothing here
needs torch. Reading order:

- `data_sets`: the two kinds of example, the tables and text files they are read from, and a
  grammar that generates agreement examples, for tests and for use without data.
- `treebanks`: agreement examples from treebanks in the CoNLL-U format.
- `catalog`: the data sets of `catalog.toml`, their checksums and downloads.
"""
