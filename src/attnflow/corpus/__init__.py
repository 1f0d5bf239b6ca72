"""Whole data sets: read as a stream, scored in shards, written as Parquet, killed and resumed."""
