"""Doors to and from other tools. Each imports its library only when it is used."""
