"""A program for a batch of one size as a program for a batch of another."""

from . import link_rules as link_rules
