"""Programs to programs: canonical form, custom calls as ops, dynamic sizes resolved, loops without dead carries."""
