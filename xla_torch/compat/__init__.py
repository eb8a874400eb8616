"""Provide interfaces of other libraries: `xla_client` is that of jaxlib.

Each module maps names, argument orders, defaults and classes to xla_torch. Nothing in xla_torch imports them.
"""
