"""Programs to programs: canonical form, custom calls as ops, dynamic sizes settled, loops without dead carries."""
