"""Datasets: schema, shards, random access; batches; tables and values that Python decodes."""
