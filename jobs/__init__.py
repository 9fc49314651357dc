"""Jobs and the command line: ingest, publish, reindex, demo."""
