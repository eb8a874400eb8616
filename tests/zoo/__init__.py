"""Models of other people's libraries, in through JAX and out through torch: `make zoo`."""
