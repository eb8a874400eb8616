"""A program in another precision: which ops then compute in what, and the programs rewritten by that."""
