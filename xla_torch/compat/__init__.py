"""Interfaces of other libraries, so that scripts that were written for them run here: `xla_client` is that of jaxlib.

Each maps names, argument orders, defaults and classes onto what xla_torch has, and nothing imports them but their users.
"""
