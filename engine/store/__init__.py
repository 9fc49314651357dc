"""Delta Lake tables of bases, items, revisions and publications."""
