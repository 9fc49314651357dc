"""Segments and generations: Lucene, FAISS, Arrow."""
