"""What the tests share: the oracle and comparisons with it, tables of rows, programs, and processes."""
