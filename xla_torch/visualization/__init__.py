"""Pictures of programs: a page to look through, and graphs for Graphviz. Made of the IR alone, without torch."""
