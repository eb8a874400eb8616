"""Programs that run: what is kept with a program, how torch.autograd and torch.func see it, and the code that runs as text."""
