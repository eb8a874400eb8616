"""IR to torch.fx: what each op computes (`bodies`), the evaluator that serves eager calls and tracing, loops, regions, memory."""
