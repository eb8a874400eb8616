"""Functions that programs spell out in ops, found again: `library` has the spellings, `matching` compares."""
