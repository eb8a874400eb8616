"""The command line: what commands there are (`commands.py`), what each does, and how they are run (`main.py`).

`commands.py` knows click and no torch, so that help, completion and wrong usage need not wait for it; what a command does is
imported when it is called. Each returns what it has to say (`messages.py`): as text, and as JSON.
"""
