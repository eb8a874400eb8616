"""What only reads the IR: what a region computes, what a loop does, which way values take along channels."""
