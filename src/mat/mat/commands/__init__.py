"""The bodies of the commands of `mat`, a module each; only `mat.__main__` imports them, when a command is given."""
